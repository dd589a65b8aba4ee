#!/usr/bin/env python3
"""libswnic as it is installed: which names it has, and docs/examples/embed.c compiled against it.

Installs into a folder of its own (DESTDIR), and from there uses nothing but what pkg-config says.
Prints TAP; SWNIC_BUILD is the build tree, already built.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
import tap as taplib  # noqa: E402
from tap import expect  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ["SWNIC_BUILD"])
EXAMPLE = ROOT / "docs" / "examples" / "embed.c"
CC = os.environ.get("CC", "cc").split()
TRANSCRIPT = ["guest -> network: 64 bytes", "network -> guest: 64 bytes"]


def run(*command, **kwargs):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            timeout=120, **kwargs)
    expect(result.returncode == 0,
           f"{command} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def expect_example_works(program, library_folder=None):
    env = dict(os.environ)
    if library_folder:
        env["LD_LIBRARY_PATH"] = str(library_folder)
    lines = run(program, env=env).splitlines()
    expect(re.fullmatch(r'libswnic \d+\.\d+\.\d+: 1af4:1041, MAC "52:54:00:00:00:01"', lines[0]),
           f"first line: {lines[0]}")
    expect(lines[1:] == TRANSCRIPT, f"printed {lines}")


def declared_names():
    header = (ROOT / "include" / "swnic" / "swnic.h").read_text()
    return set(re.findall(r"^SWNIC_API [^;(]*?(\w+)\(", header, re.M))


class Installed:
    """The tree that `ninja install` makes, under @folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        run("meson", "install", "--no-rebuild", "--quiet", "--destdir", folder, "-C", BUILD)
        self.pc = self.one("swnic.pc")
        self.shared = self.one("libswnic.so")
        self.static = self.one("libswnic.a")
        self.header = self.one("swnic.h")
        self.version = re.search(r"^Version: (.*)$", self.pc.read_text(), re.M).group(1)

    def one(self, name):
        found = list(self.folder.rglob(name))
        expect(len(found) == 1, f"{name} is installed as {found}")
        return found[0]

    def pkg_config(self, *args):
        """swnic.pc says where the tree is to be; here it is in @folder."""
        moved = self.folder / "pkgconfig"
        moved.mkdir(exist_ok=True)
        text = re.sub(r"^prefix=", f"prefix={self.folder}", self.pc.read_text(), flags=re.M)
        (moved / "swnic.pc").write_text(text)
        env = dict(os.environ, PKG_CONFIG_PATH=str(moved))
        return run("pkg-config", *args, "swnic", env=env).split()


def test_files(installed):
    expect(installed.header.parent.name == "swnic", f"header in {installed.header.parent}")
    others = [p for p in installed.folder.rglob("*.h")]
    expect(others == [installed.header], f"headers: {others}")
    archives = [p.name for p in installed.folder.rglob("*.a")]
    expect(archives == ["libswnic.a"], f"static libraries: {archives}")
    dynamic = run("readelf", "-d", installed.shared)
    expect("Library soname: [libswnic.so.0]" in dynamic, dynamic)
    expect((installed.shared.parent / "libswnic.so.0").exists(), "no libswnic.so.0")
    expect(installed.pkg_config("--modversion") == [installed.version], "version of swnic.pc")


def expect_only_declared(names):
    expect(names == declared_names(),
           f"exported, not declared: {sorted(names - declared_names())}; "
           f"declared, not exported: {sorted(declared_names() - names)}")


def exported(*options):
    rows = [line.split() for line in run("nm", *options).splitlines()]
    names = {row[-1] for row in rows if len(row) == 3}
    # What a sanitizer or coverage build's compiler adds is not ours.
    return {n for n in names if not n.startswith(("__", "_GLOBAL_", "gcov_", "mangle_path"))}


def test_shared_names(installed):
    expect(len(declared_names()) > 20, "the header's functions are not found")
    expect_only_declared(exported("-D", "--defined-only", installed.shared))


def test_static_names(installed):
    expect_only_declared(exported("-g", "--defined-only", installed.static))


def test_header_alone(installed):
    """Strict C, and C++ where there is a compiler."""
    cflags = installed.pkg_config("--cflags")
    strict = ["-Wall", "-Wextra", "-Werror", "-Wpedantic", "-fsyntax-only", *cflags]
    source = installed.folder / "header.c"
    source.write_text("#include <swnic/swnic.h>\nint main(void) { return !swnic_version(); }\n")
    run(*CC, "-std=c99", *strict, source)
    if shutil.which("c++"):
        run("c++", "-x", "c++", "-std=c++11", *strict, source)


def test_example_shared(installed):
    program = installed.folder / "embed-shared"
    run(*CC, "-Wall", "-Werror", "-o", program, EXAMPLE,
        *installed.pkg_config("--cflags", "--libs"), *sanitizer_flags())
    needed = run("readelf", "-d", program)
    expect("[libswnic.so.0]" in needed, needed)
    expect_example_works(program, installed.shared.parent)


def test_example_static(installed):
    program = installed.folder / "embed-static"
    libs = installed.pkg_config("--static", "--libs")
    at = libs.index("-lswnic")
    libs[at:at + 1] = ["-Wl,-Bstatic", "-lswnic", "-Wl,-Bdynamic"]
    run(*CC, "-Wall", "-Werror", "-o", program, EXAMPLE, *installed.pkg_config("--cflags"), *libs,
        *sanitizer_flags())
    expect("libswnic" not in run("readelf", "-d", program), "linked to the shared library")
    expect_example_works(program)


def sanitizer_flags():
    """A library with a sanitizer in it needs a program with it too."""
    symbols = run("nm", "-D", BUILD / "libswnic" / "libswnic.so")
    return [flag for name, flag in (("__asan_init", "-fsanitize=address,undefined"),
                                    ("__tsan_init", "-fsanitize=thread"),
                                    ("__gcov", "--coverage")) if name in symbols]


def test_points(tap):
    tap.run("library/example-in-the-build-tree", expect_example_works,
            BUILD / "libswnic" / "embed-example")
    with tempfile.TemporaryDirectory() as folder:
        installed = Installed(folder)
        for name, function in (("files", test_files), ("shared-library-names", test_shared_names),
                               ("static-library-names", test_static_names),
                               ("header-alone", test_header_alone),
                               ("example-shared", test_example_shared),
                               ("example-static", test_example_static)):
            tap.run(f"library/installed/{name}", function, installed)


if __name__ == "__main__":
    taplib.main(test_points)
