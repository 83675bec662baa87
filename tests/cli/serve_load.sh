#!/bin/sh
# ddl serve under load: 64 clients of which a fifth leave early, memory, a long stream, 10,000 connections with few descriptors, and
# kill -9 between requests. The clients are bench/peers/serve_load.py (Python without packages).
#   sh serve_load.sh PROGRAM SOURCE SCRATCH
set -eu
program=$1 source=$2 scratch=$3
. "$source/tests/support/checks.sh"
python=${DDL_PYTHON:-python3}
"$python" -c 'import asyncio' 2>/dev/null || { echo "skipped: there is no $python"; exit 77; }
cd "$scratch"
rm -rf ./*
export OMP_NUM_THREADS=1

cp "$source/LICENSE" text.txt
"$program" tokenizer train text.txt --vocab-size 300 --out . --quiet >/dev/null
"$program" data build text.txt --tokenizer . --out data --quiet >/dev/null
"$program" train --model ddl-cc-ec --hidden-size 32 --num-hidden-layers 2 --num-attention-heads 2 --head-dim 16 \
    --vocab-size 300 --block-size 256 --train-data data --tokenizer . --steps 1 --batch 1 --seq 32 --warmup 0 --val-every 0 \
    --out run --quiet >/dev/null 2>&1

# start [COMMAND...]: the server, behind `ulimit -n` where $files is set; $pid and $url.
files=
start() {
    rm -f log
    (
        [ -z "$files" ] || ulimit -n "$files"
        exec "$program" serve run --port "${port:-0}" --slots 16 --threads 1 2>log
    ) &
    pid=$!
    for _ in $(seq 300); do
        url=$(sed -n 's|.*\(http://127.0.0.1:[0-9]*\).*|\1|p' log | head -n 1)
        [ -z "$url" ] || return 0
        kill -0 $pid 2>/dev/null || fail "$(cat log)"
        sleep 0.2
    done
    fail "the server does not start: $(cat log)"
}
# stop: it ends its requests and reports no error, as of a sanitizer.
stop() {
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 0 ] || fail "exit status $status: $(cat log)"
}
load() { "$python" "$source/bench/peers/serve_load.py" "$url" --words 8 --tokens 24 "$@"; }

# Equal prompts have equal texts, whatever their neighbors; memory after a tenth of the requests and at the end.
clients() {
    requests=20000
    [ -z "$sanitized" ] || requests=3000
    ! is_sample || requests=1000
    start
    load --clients 64 --requests $requests --leave 0.2 --check --prompts 40 --pid $pid >out || fail "$(cat log)"
    stop
    cat out
    [ -n "$sanitized" ] || "$python" - <<END
import json
first, last = json.load(open("out"))["resident_mb"]
assert last <= first + 4, f"{first} MB, then {last}"
END
}

# What was streamed is not kept: peak memory grows by less than the stream has bytes.
stream() {
    start
    "$python" - "$url" $pid "$sanitized" <<'END'
import json, sys, urllib.request
def peak():
    with open(f"/proc/{sys.argv[2]}/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) << 10
def read(tokens):
    body = {"prompt": "x", "n": 64, "max_tokens": tokens, "ignore_eos": True, "stream": True, "logprobs": 100}
    request = urllib.request.Request(sys.argv[1] + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    size, end = 0, b""
    with urllib.request.urlopen(request) as answer:
        while piece := answer.read1(1 << 20):
            size, end = size + len(piece), (end + piece)[-14:]
    assert end == b"data: [DONE]\n\n", end
    return size
read(2)
before = peak()
size = read(250)
grown = peak() - before
print(f"stream of {size / 1e6:.1f} MB: peak memory grows by {grown / 1e6:.1f} MB")
assert sys.argv[3] or grown < size / 4
END
    stop
}

# So many that the server refuses most: it answers again once they are closed.
connections() {
    files=256
    start
    "$python" - "$url" <<'END'
import resource, socket, sys, time, urllib.request
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
n, open_ones = min(10000, hard - 50), []
host, port = sys.argv[1].removeprefix("http://").split(":")
for i in range(n):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex((host, int(port)))
    open_ones.append(s)
time.sleep(1)
for s in open_ones:
    s.close()
start = time.monotonic()
while True:
    try:
        assert b"ok" in urllib.request.urlopen(sys.argv[1] + "/health", timeout=10).read()
        break
    except OSError as error:
        assert time.monotonic() - start < 60, error
        time.sleep(0.1)
print(f"{n} connections; /health after {time.monotonic() - start:.2f} s")
END
    stop
}

# A killed server leaves the model as it was, and another one takes its port at once.
killed() {
    sums=$(cat run/checkpoint-1/* | cksum)
    start
    port=${url##*:}
    for _ in 1 2 3; do
        load --clients 16 --seconds 60 >out 2>failures &
        clients=$!
        sleep 1
        kill -9 $pid
        wait $pid 2>/dev/null || true
        start
        kill $clients
        wait $clients 2>/dev/null || true
        load --clients 4 --requests 8 >out || fail "$(cat log)"
    done
    stop
    [ "$sums" = "$(cat run/checkpoint-1/* | cksum)" ] || fail "the model has changed"
}

# A sanitizer keeps memory that was freed.
sanitized=$(nm "$program" 2>/dev/null | grep -m 1 -o '__[at]san_init' || true)
check clients clients
check stream stream
check connections connections
check killed killed
finish
