#!/bin/sh
# Reads event files with TensorBoard itself. Requires a Python with tensorboard: DDL_PYTHON, or python3; else skipped.
python=${DDL_PYTHON:-python3}
if ! "$python" -c 'import tensorboard.backend.event_processing.event_accumulator' >/dev/null 2>&1; then
    echo "skipped: $python has no tensorboard (set DDL_PYTHON to another interpreter)"
    exit 77
fi
exec "$python" "$DDL_SOURCE_DIR/tests/python/tensorboard_events.py"
