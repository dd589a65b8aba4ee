#!/usr/bin/env python3
"""The schema generator refuses what is wrong, with the place and the reason.  Prints TAP."""
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
from qapi import emit, introspect, manual, parser, schema  # noqa: E402


def doc(name, *members):
    """A documentation block of `name` with `members`."""
    rows = "".join(f"#\n# @{m}: text\n" for m in members)
    return f"##\n# @{name}:\n#\n# Text.\n{rows}##\n"


BASE = doc("E", "a", "b") + "{ 'enum': 'E', 'data': ['a', 'b'] }\n" + \
    doc("S", "m") + "{ 'struct': 'S', 'data': { 'm': 'int' } }\n"

BAD = [  # name, schema, part of the message
    ("no-documentation", "{ 'command': 'c' }", "'c' has no documentation"),
    ("empty-documentation", "##\n# @c:\n##\n{ 'command': 'c' }", "says nothing about itself"),
    ("argument-undocumented", doc("c") + "{ 'command': 'c', 'data': {'x': 'int'} }",
     "'@x' is not documented"),
    ("event-argument-undocumented", doc("X") + "{ 'event': 'X', 'data': {'x': 'int'} }",
     "'@x' is not documented"),
    ("value-undocumented", doc("E", "a") + "{ 'enum': 'E', 'data': ['a', 'b'] }",
     "'@b' is not documented"),
    ("documents-unknown", doc("c", "y") + "{ 'command': 'c' }", "documents '@y'"),
    ("documentation-of-another", doc("d") + "{ 'command': 'c' }", "documentation is of 'd'"),
    ("documentation-alone", doc("d"), "documentation of 'd'"),
    ("no-returns", BASE + doc("c") + "{ 'command': 'c', 'returns': 'S' }", "lacks 'Returns:'"),
    ("feature-undocumented", doc("c") + "{ 'command': 'c', 'features': ['f'] }",
     "feature '@f' is not documented"),
    ("unknown-type", doc("S", "m") + "{ 'struct': 'S', 'data': {'m': 'Nope'} }",
     "unknown type 'Nope'"),
    ("unknown-key", doc("c") + "{ 'command': 'c', 'args': {} }", "unknown key 'args'"),
    ("unknown-expression", doc("c") + "{ 'cmd': 'c' }", "unknown expression"),
    ("defined-twice", BASE + doc("S", "m") + "{ 'struct': 'S', 'data': {'m': 'int'} }",
     "'S' is defined twice"),
    ("duplicate-key", doc("S") + "{ 'struct': 'S', 'struct': 'S' }", "duplicate key 'struct'"),
    ("member-clash", BASE + doc("T", "m")
     + "{ 'struct': 'T', 'base': 'S', 'data': {'m': 'str'} }", "two members 'm'"),
    ("branch-unknown", BASE + doc("U", "k")
     + "{ 'union': 'U', 'base': {'k': 'E'}, 'discriminator': 'k', 'data': {'z': 'S'} }",
     "'z' is no value of 'E'"),
    ("branch-no-struct", BASE + doc("U", "k")
     + "{ 'union': 'U', 'base': {'k': 'E'}, 'discriminator': 'k', 'data': {'a': 'int'} }",
     "not a structure"),
    ("discriminator-unknown", BASE + doc("U", "k")
     + "{ 'union': 'U', 'base': {'k': 'E'}, 'discriminator': 'x', 'data': {'a': 'S'} }",
     "discriminator 'x'"),
    ("enum-value-twice", doc("E", "a") + "{ 'enum': 'E', 'data': ['a', 'a'] }", "doubled"),
    ("bad-name", doc("c") + "{ 'command': '9 c' }", "is not a name"),
    ("trailing-comma", doc("c") + "{ 'command': 'c', }", "comma before a closing bracket"),
    ("double-quotes", doc("c") + '{ "command": "c" }', "expected a string"),
    ("missing-include", "{ 'include': 'nope.json' }", "'nope.json' does not exist"),
    ("open-documentation", "##\n# @c:\n{ 'command': 'c' }", "without its closing ##"),
]


def load(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        path.write_text(text)
        return schema.Schema(parser.Parser(path).exprs)


def refuses(text, message):
    """Why `text` is not refused as it should be, or None."""
    try:
        load(text)
    except parser.QapiError as err:
        return None if message in str(err) and "s.json:" in str(err) else str(err)
    return "was accepted"


def every_output_is_made():
    path = Path(__file__).resolve().parent / "test-schema.json"
    loaded = schema.Schema(parser.Parser(path).exprs)
    names = {info["name"] for info in introspect.Introspection(loaded).infos}
    text = manual.manual(loaded)
    missing = [n for n in ("test-command", "TEST_EVENT", "TestUnion", "TestKind", "[str]", "int")
               if n not in names]
    missing += [n for n in ("### test-command", "### TEST_EVENT", "### TestUnion") if n not in text]
    if "qmp_test_command(const char *name, bool has_count" not in emit.commands_header(loaded):
        missing.append("prototype")
    return f"missing: {missing}" if missing else None


def c_names():
    pairs = [("RunState", "RUN_STATE"), ("QMPCapability", "QMP_CAPABILITY"), ("b-c", "B_C"),
             ("IOThreadInfo", "IO_THREAD_INFO"), ("host-qmp-quit", "HOST_QMP_QUIT")]
    wrong = [n for n, upper in pairs if schema.upper_name(n) != upper]
    wrong += [n for n, name in (("unix", "q_unix"), ("a.b-c", "a_b_c")) if schema.c_name(n) != name]
    return f"wrong: {wrong}" if wrong else None


def main():
    results = [(f"qapi-gen/refuses/{name}", refuses(text, message)) for name, text, message in BAD]
    results.append(("qapi-gen/accepts/base", refuses(BASE, "") and None))
    results.append(("qapi-gen/makes-every-output", every_output_is_made()))
    results.append(("qapi-gen/c-names", c_names()))
    print(f"1..{len(results)}")
    for number, (name, problem) in enumerate(results, 1):
        print(f"{'not ok' if problem else 'ok'} {number} {name}")
        if problem:
            print(f"# {problem}")
    return any(problem for _, problem in results)


if __name__ == "__main__":
    sys.exit(main())
