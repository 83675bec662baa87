"""The examples of docs/serve.md: commands of curl, and nginx with TLS before the server."""
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

import pytest
from conftest import PROGRAM, SOURCE

TEXT = (SOURCE / "docs/serve.md").read_text()


def test_curl(server):
    commands = re.findall(r"^curl .*(?:\n    .*)*", TEXT, re.M)
    assert commands
    for command in commands:
        done = subprocess.run(["sh", "-c", command.replace("http://127.0.0.1:8080", server) + " -sS"], capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["choices"][0]["text"]


def test_a_socket_opened_by_systemd(run, tmp_path):
    """As systemd passes it: descriptor 3, for the process LISTEN_PID. The request that was waiting is answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        waiting = socket.create_connection(("127.0.0.1", port))
        waiting.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with (tmp_path / "log").open("w") as log:
            start = ("import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1');"
                     "os.execv(sys.argv[2], sys.argv[2:])")
            process = subprocess.Popen([sys.executable, "-c", start, str(listener.fileno()), PROGRAM, "serve", f"run={run}",
                                        "--user", "root"], pass_fds=[listener.fileno()], stdout=log, stderr=log)
    try:
        waiting.settimeout(60)
        assert b"200 OK" in waiting.recv(100)
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0, (tmp_path / "log").read_text()
    assert f"listening at http://127.0.0.1:{port}\n" in (tmp_path / "log").read_text()


def test_the_unit_file(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    unit = re.search(r"```ini\n(.*?)```", TEXT, re.S)[1].replace("/usr/bin/ddl", PROGRAM)
    (tmp_path / "ddl.service").write_text(unit)
    (tmp_path / "ddl.socket").write_text("[Socket]\nListenStream=127.0.0.1:8080\n[Install]\nWantedBy=sockets.target\n")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "ddl.service", tmp_path / "ddl.socket"],
                          capture_output=True, text=True)
    assert "ddl." not in done.stderr, done.stderr


def find_nginx(folder):
    """nginx of this machine, or unpacked from Debian's package without installing it; None where there is neither."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not found and shutil.which("apt-get"):
        subprocess.run("apt-get download nginx && dpkg-deb -x nginx_*.deb .", shell=True, cwd=folder, capture_output=True)
        found = shutil.which("nginx", path=str(folder / "usr/sbin"))
    works = found and subprocess.run([found, "-v"], capture_output=True).returncode == 0
    return found if works else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_nginx_with_tls(server, tmp_path):
    """The location of the document, behind TLS: an answer, and a stream whose events arrive one by one."""
    nginx = find_nginx(tmp_path)
    if not nginx or not shutil.which("openssl"):
        pytest.skip("no nginx or no openssl")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key", "-out", tmp_path / "certificate"],
                   check=True, capture_output=True)
    location = re.search(r"```nginx\n(.*?)```", TEXT, re.S)[1].replace("http://127.0.0.1:8080", server)
    port = free_port()
    (tmp_path / "conf").write_text(f"""
daemon off; pid {tmp_path}/pid; error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {tmp_path}/a; proxy_temp_path {tmp_path}/b; fastcgi_temp_path {tmp_path}/c;
    uwsgi_temp_path {tmp_path}/d; scgi_temp_path {tmp_path}/e;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {tmp_path}/certificate; ssl_certificate_key {tmp_path}/key;
        {location}
    }}
}}
""")
    process = subprocess.Popen([nginx, "-c", tmp_path / "conf", "-p", tmp_path], stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(100):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        context = ssl.create_default_context(cafile=str(tmp_path / "certificate"))

        def ask(**fields):
            body = json.dumps({"prompt": "The king", "max_tokens": 200, "seed": 1, "ignore_end": True, **fields}).encode()
            return urllib.request.urlopen(urllib.request.Request(
                f"https://localhost:{port}/v1/completions", body, {"Content-Type": "application/json"}), context=context)

        whole = json.load(ask())["choices"][0]["text"]
        times, text = [], ""
        for line in ask(stream=True):
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
                text += json.loads(line[6:])["choices"][0]["text"]
        assert text == whole
        assert len(times) > 20 and times[-1] - times[0] > 0.02
    finally:
        process.terminate()
        process.wait(timeout=20)
