"""Runs test functions (test_NAME, coroutines) of a module and prints TAP."""
import asyncio
import sys
import time
import traceback


def run(module, timeout=120):
    """Every test of @module; those named in sys.argv only, if there are any."""
    tests = [(name[5:], function) for name, function in vars(module).items()
             if name.startswith("test_") and (len(sys.argv) < 2 or name[5:] in sys.argv[1:])]
    failed = 0
    print(f"1..{len(tests)}")
    for number, (name, function) in enumerate(tests, 1):
        start = time.monotonic()
        try:
            asyncio.run(asyncio.wait_for(function(), timeout))
            print(f"ok {number} {name} # {time.monotonic() - start:.1f} s", flush=True)
        except Exception:  # noqa: BLE001: whatever it is, it is this test's
            failed = 1
            print(f"not ok {number} {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("#", line, flush=True)
    return failed
