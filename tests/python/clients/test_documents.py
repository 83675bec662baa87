"""The examples of docs/serve.md: commands of curl, and nginx with TLS before the server."""
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request

import pytest
from conftest import SOURCE

TEXT = (SOURCE / "docs/serve.md").read_text()


def test_curl(server):
    commands = re.findall(r"^curl .*(?:\n    .*)*", TEXT, re.M)
    assert commands
    for command in commands:
        done = subprocess.run(["sh", "-c", command.replace("http://127.0.0.1:8080", server) + " -sS"], capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["choices"][0]["text"]


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
