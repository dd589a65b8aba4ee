"""QAPI: schema files to C, introspection and manual.  See parser.py for the language."""
