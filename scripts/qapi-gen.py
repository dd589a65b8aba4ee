#!/usr/bin/env python3
"""Makes C code, introspection and the reference manual from a QAPI schema.

    qapi-gen.py [-o DIR] [--include-dir DIR] [--manual FILE] [--depfile FILE] SCHEMA

writes DIR/qapi-{types,visit,commands,events,introspect}.{c,h}.
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from qapi import emit, introspect, manual, parser, schema as schemas  # noqa: E402


def outputs(schema):
    """File name -> contents."""
    return {
        "qapi-types.h": emit.types_header(schema),
        "qapi-types.c": emit.types_source(schema),
        "qapi-visit.h": emit.visit_header(schema),
        "qapi-visit.c": emit.visit_source(schema),
        "qapi-commands.h": emit.commands_header(schema),
        "qapi-commands.c": emit.commands_source(schema),
        "qapi-events.h": emit.events_header(schema),
        "qapi-events.c": emit.events_source(schema),
        "qapi-introspect.h": introspect.introspect_header(),
        "qapi-introspect.c": introspect.introspect_source(schema),
    }


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    args.add_argument("schema")
    args.add_argument("-o", "--output", default=".", type=Path, help="directory for the C files")
    args.add_argument("--include-dir", default="qapi", help="the folder as C includes name it")
    args.add_argument("--manual", type=Path, help="write the manual there (Markdown)")
    args.add_argument("--depfile", type=Path, help="write the files read there, for ninja")
    opts = args.parse_args()
    try:
        parsed = parser.Parser(opts.schema)
        schema = schemas.Schema(parsed.exprs)
    except (parser.QapiError, OSError) as err:
        sys.exit(f"qapi-gen: {err}")
    opts.output.mkdir(parents=True, exist_ok=True)
    for name, text in outputs(schema).items():
        (opts.output / name).write_text(text.replace('"qapi/qapi-', f'"{opts.include_dir}/qapi-'))
    if opts.manual:
        opts.manual.write_text(manual.manual(schema))
    if opts.depfile:
        target = opts.output / "qapi-types.h"
        files = parsed.files + sorted(Path(__file__).parent.glob("qapi/*.py"))
        opts.depfile.write_text(f"{target}: {' '.join(str(f) for f in files)}\n")


if __name__ == "__main__":
    main()
