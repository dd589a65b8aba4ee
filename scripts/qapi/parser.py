"""Reads schema files: the QAPI language and its documentation comments.

A file is a sequence of expressions in a JSON-like language ('strings', {objects}, [arrays], true,
false, # comments), each after a documentation block between two lines of `##`.  This module knows
the syntax only; what the expressions mean is schema.py's.
"""
import re
from pathlib import Path

TOKEN = re.compile(r"\s*(?:(?P<comment>#[^\n]*)|(?P<punct>[{}\[\]:,])|'(?P<string>[^'\\\n]*)'"
                   r"|(?P<word>true|false)\b)")
TAG = re.compile(r"(Returns|Errors|Since|Features|Notes?|Examples?):\s*(.*)$")
ARG = re.compile(r"@([\w.-]+):\s*(.*)$")


class QapiError(Exception):
    """What is wrong with a schema, with its place."""

    def __init__(self, where, message):
        super().__init__(f"{where}: {message}")


class Doc:
    """One documentation block: text, arguments in order, features, tagged sections."""

    def __init__(self, where, symbol):
        self.where = where
        self.symbol = symbol
        self.text = []       # lines
        self.args = {}       # name -> lines
        self.features = {}   # name -> lines
        self.tags = []       # (tag, lines)

    def tag(self, name):
        """Text of the first section `name:`, or None."""
        return next((" ".join(lines).strip() for tag, lines in self.tags if tag == name), None)


class Expr:
    """A top-level expression with its place and documentation."""

    def __init__(self, where, value, doc):
        self.where = where
        self.value = value
        self.doc = doc


def parse_doc(where, lines):
    """A Doc from the lines between the ## marks, or None for a free comment."""
    text = []
    for line in lines:
        if line != "#" and not line.startswith("# "):
            raise QapiError(where, f"documentation lines start with '# ', not '{line}'")
        text.append(line[2:].rstrip())
    while text and not text[0]:
        text.pop(0)
    first = ARG.match(text[0]) if text else None
    if not first:
        return None
    if first.group(2):
        raise QapiError(where, f"the line '@{first.group(1)}:' must end at its colon")
    doc = Doc(where, first.group(1))
    section, names = doc.text, doc.args
    for line in text[1:]:
        arg, tag = ARG.match(line), TAG.match(line)
        if arg:
            if arg.group(1) in names:
                raise QapiError(where, f"'@{arg.group(1)}' is documented twice")
            section = names[arg.group(1)] = [arg.group(2)]
        elif tag and tag.group(1) == "Features":
            names, section = doc.features, []
        elif tag:
            section = [tag.group(2)]
            doc.tags.append((tag.group(1), section))
        else:
            section.append(line.strip() if section is not doc.text else line)
    return doc


class Parser:
    """One file; `exprs` holds it and all it includes, in order, each file once."""

    def __init__(self, path, seen=None):
        self.path = Path(path)
        self.seen = seen if seen is not None else set()
        self.seen.add(self.path.resolve())
        self.exprs = []
        self.files = [self.path]
        try:
            self.text = self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError as err:
            raise QapiError(path, f"schema files are UTF-8: {err}") from err
        self.pos = 0
        self._parse()

    def _where(self, pos=None):
        line = self.text.count("\n", 0, self.pos if pos is None else pos) + 1
        return f"{self.path}:{line}"

    def _parse(self):
        doc = None
        while True:
            self._skip_blank()
            if self.pos >= len(self.text):
                break
            if self.text.startswith("##", self.pos):
                if doc:
                    raise QapiError(doc.where, f"documentation of '{doc.symbol}' with no "
                                    "expression behind it")
                doc = self._doc_block()
                continue
            where = self._where()
            value = self._value(self._next())
            if not isinstance(value, dict):
                raise QapiError(where, "an expression is an object")
            if list(value) == ["include"]:
                self._include(where, value["include"])
                continue
            self.exprs.append(Expr(where, value, doc))
            doc = None
        if doc:
            raise QapiError(doc.where, f"documentation of '{doc.symbol}' at the end of the file")

    def _skip_blank(self):
        while True:
            match = re.compile(r"\s+|#(?!#)[^\n]*").match(self.text, self.pos)
            if not match:
                return
            self.pos = match.end()

    def _doc_block(self):
        where = self._where()
        end = re.compile(r"^##[ \t]*$", re.M).search(self.text, self.pos + 2)
        if not end:
            raise QapiError(where, "documentation block without its closing ##")
        lines = self.text[self.pos:end.start()].split("\n")[1:-1]
        self.pos = end.end()
        return parse_doc(where, lines)

    def _include(self, where, name):
        path = self.path.parent / name
        if not path.is_file():
            raise QapiError(where, f"include file '{name}' does not exist")
        if path.resolve() in self.seen:
            return
        sub = Parser(path, self.seen)
        self.exprs += sub.exprs
        self.files += sub.files

    def _next(self):
        """The next token: a punctuation character, ('str', text), True or False."""
        while True:
            match = TOKEN.match(self.text, self.pos)
            if not match:
                raise QapiError(self._where(), "expected a string, a bracket, true or false")
            self.pos = match.end()
            if match.group("comment"):
                continue
            if match.group("punct"):
                return match.group("punct")
            if match.group("word"):
                return match.group("word") == "true"
            return ("str", match.group("string"))

    def _value(self, token):
        if token == "{":
            return self._object()
        if token == "[":
            return self._array()
        if isinstance(token, tuple):
            return token[1]
        if isinstance(token, bool):
            return token
        raise QapiError(self._where(), f"'{token}' where a value must stand")

    def _object(self):
        members = {}
        token = self._next()
        while token != "}":
            if not isinstance(token, tuple):
                raise QapiError(self._where(), "a key is a string")
            key = token[1]
            if key in members:
                raise QapiError(self._where(), f"duplicate key '{key}'")
            if self._next() != ":":
                raise QapiError(self._where(), f"expected ':' after '{key}'")
            members[key] = self._value(self._next())
            token = self._separator("}")
        return members

    def _array(self):
        items = []
        token = self._next()
        while token != "]":
            items.append(self._value(token))
            token = self._separator("]")
        return items

    def _separator(self, end):
        token = self._next()
        if token == end:
            return token
        if token != ",":
            raise QapiError(self._where(), f"expected ',' or '{end}'")
        token = self._next()
        if token == end:
            raise QapiError(self._where(), "comma before a closing bracket")
        return token
