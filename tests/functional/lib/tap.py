"""Test points in TAP, one a function: what a Python test prints and how it ends."""
import sys
import time
import traceback


class Failure(Exception):
    """Says what was expected and what was there instead."""


def expect(condition, text):
    if not condition:
        raise Failure(text)


def selected(tests):
    """Those of @tests, tuples with the name in front, whose name has all words of the command line
    in it."""
    return [test for test in tests if all(word in test[0] for word in sys.argv[1:])]


class Tap:
    """Counts points; finish() prints the plan and gives the exit status."""

    def __init__(self):
        self.count = 0
        self.failed = 0

    def note(self, text):
        for line in str(text).splitlines():
            print(f"# {line}", flush=True)

    def run(self, name, function, *args):
        """One point: @function's exceptions are its failure, text it returns is noted.  True if it
        passed."""
        self.count += 1
        began = time.monotonic()
        try:
            text = function(*args)
        except Exception as error:  # whatever went wrong is this point's
            self.failed += 1
            print(f"not ok {self.count} {name}", flush=True)
            self.note(error)
            if not isinstance(error, Failure):
                self.note(traceback.format_exc())
            return False
        print(f"ok {self.count} {name} # {time.monotonic() - began:.1f} s", flush=True)
        if isinstance(text, str):
            self.note(text)
        return True

    def finish(self):
        print(f"1..{self.count}", flush=True)
        return 1 if self.failed or not self.count else 0


def skip_all(reason):
    print(f"1..0 # SKIP {reason}")
    sys.exit(0)


def run_all(tests):
    """Every one of @tests, (name, function), that the command line selects, as a program."""
    tap = Tap()
    for test in selected(tests):
        tap.run(*test)
    sys.exit(tap.finish())


def main(function):
    """Runs @function(tap); what it did not catch itself fails as a point of its own."""
    tap = Tap()
    try:
        function(tap)
    except Exception as error:
        tap.count += 1
        tap.failed += 1
        print(f"not ok {tap.count} {sys.argv[0]}: {error}", flush=True)
        tap.note(traceback.format_exc())
    sys.exit(tap.finish())
