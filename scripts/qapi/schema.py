"""What a schema means: types, commands and events, checked.

Schema(exprs) turns parsed expressions into entities and refuses whatever is unknown, missing,
doubled or undocumented, with the place in the file.
"""
import re

from .parser import QapiError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*$")
ENUM_VALUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*$")
C_WORDS = set("auto break case char const continue default do double else enum extern float for "
              "goto if inline int long register restrict return short signed sizeof static struct "
              "switch typedef union unsigned void volatile while asm typeof unix linux i386 bool "
              "errno stdin stdout stderr".split())
BUILTINS = {  # name -> (C type of a slot, introspection's json-type)
    "str": ("char *", "string"), "bool": ("bool", "boolean"), "int": ("int64_t", "int"),
    "number": ("double", "number"), "size": ("uint64_t", "int"), "null": ("bool", "null"),
    "any": ("json_object *", "value"),
    **{f"{sign}int{bits}": (f"{sign}int{bits}_t", "int")
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def c_name(name):
    """The C identifier for a name of the schema."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return "q_" + name if name in C_WORDS or name[0].isdigit() else name


def upper_name(name):
    """FooBar, fooBar and foo-bar as FOO_BAR; QMPThing as QMP_THING."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    name = re.sub(r"([A-Z])([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"[^A-Za-z0-9_]", "_", name).upper()


class Type:
    """A type; `pointer` says whether a slot of it is a pointer."""
    kind = ""
    pointer = False

    def __init__(self, name, where=None, doc=None):
        self.name = name
        self.where = where
        self.doc = doc
        self.features = []

    def slot(self):
        """C declaration of a slot, ready for a name to follow."""
        return f"{c_name(self.name)} *"

    def desc(self):
        """C name of the QapiType table."""
        return "qapi_type_" + re.sub(r"[^A-Za-z0-9_]", "_", self.name)


class Builtin(Type):
    kind = "builtin"

    def __init__(self, name):
        super().__init__(name)
        self.pointer = name in ("str", "any")

    def slot(self):
        ctype = BUILTINS[self.name][0]
        return ctype if ctype.endswith("*") else ctype + " "


class EnumType(Type):
    kind = "enum"

    def __init__(self, name, where, doc, values, prefix):
        super().__init__(name, where, doc)
        self.values = values  # Member-like: name, features
        self.prefix = prefix or upper_name(name)

    def slot(self):
        return c_name(self.name) + " "

    def const(self, value):
        return f"{self.prefix}_{upper_name(value)}"


class Member:
    def __init__(self, name, type_, optional=False, features=()):
        self.name = name
        self.type = type_
        self.optional = optional
        self.features = list(features)

    @property
    def has(self):
        """Needs a has_ flag of its own?"""
        return self.optional and not self.type.pointer


class StructType(Type):
    kind = "struct"
    pointer = True

    def __init__(self, name, where, doc, implicit=False):
        super().__init__(name, where, doc)
        self.base = None
        self.own = []       # Members
        self.implicit = implicit
        self.tag = None     # unions: name of the discriminator
        self.branches = {}  # unions: value -> StructType

    @property
    def members(self):
        return (self.base.members if self.base else []) + self.own


class AlternateType(Type):
    kind = "alternate"
    pointer = True

    def __init__(self, name, where, doc):
        super().__init__(name, where, doc)
        self.branches = []  # Members
        self.kind_enum = None


class ListType(Type):
    kind = "list"
    pointer = True

    def __init__(self, element):
        super().__init__(element.name + "List")
        self.element = element


class Command:
    def __init__(self, name, where, doc):
        self.name = name
        self.where = where
        self.doc = doc
        self.arg = None       # StructType or None
        self.ret = None
        self.boxed = self.oob = self.preconfig = False
        self.gen = self.success = True
        self.features = []


class Event:
    def __init__(self, name, where, doc):
        self.name = name
        self.where = where
        self.doc = doc
        self.arg = None
        self.boxed = False
        self.features = []


KEYS = {
    "enum": ({"data"}, {"prefix", "features"}),
    "struct": ({"data"}, {"base", "features"}),
    "union": ({"base", "discriminator", "data"}, {"features"}),
    "alternate": ({"data"}, {"features"}),
    "command": (set(), {"data", "returns", "boxed", "gen", "success-response", "allow-oob",
                        "allow-preconfig", "coroutine", "features"}),
    "event": (set(), {"data", "boxed", "features"}),
}


class Schema:
    def __init__(self, exprs):
        self.types = {name: Builtin(name) for name in BUILTINS}
        self.lists = {}
        self.commands = {}
        self.events = {}
        self.order = []  # named and implicit types in order of definition
        self._exprs = []
        for expr in exprs:
            self._declare(expr)
        for meta, expr, entity in self._exprs:
            getattr(self, "_define_" + meta)(expr, entity)
        for meta, expr, entity in self._exprs:
            self._check_doc(meta, expr, entity)

    # ---- first pass: names ----

    def _declare(self, expr):
        meta = next((m for m in KEYS if m in expr.value), None)
        if not meta:
            raise QapiError(expr.where, f"unknown expression with keys {', '.join(expr.value)}")
        required, optional = KEYS[meta]
        for key in expr.value:
            if key != meta and key not in required | optional:
                raise QapiError(expr.where, f"unknown key '{key}' in {meta}, allowed: "
                                f"{', '.join(sorted(required | optional))}")
        for key in required - set(expr.value):
            raise QapiError(expr.where, f"{meta} lacks '{key}'")
        name = expr.value[meta]
        if not isinstance(name, str) or not NAME.match(name):
            raise QapiError(expr.where, f"'{name}' is not a name")
        if not expr.doc:
            raise QapiError(expr.where, f"{meta} '{name}' has no documentation")
        if expr.doc.symbol != name:
            raise QapiError(expr.where, f"documentation is of '{expr.doc.symbol}', not of '{name}'")
        if name in self.types or name in self.commands or name in self.events:
            raise QapiError(expr.where, f"'{name}' is defined twice")
        args = (name, expr.where, expr.doc)
        if meta == "command":
            entity = self.commands[name] = Command(*args)
        elif meta == "event":
            entity = self.events[name] = Event(*args)
        else:
            entity = self._declare_type(meta, expr, args)
        entity.features = self._features(expr.where, expr.value)
        self._exprs.append((meta, expr, entity))

    def _declare_type(self, meta, expr, args):
        if meta == "enum":
            entity = EnumType(*args, self._enum_values(expr), expr.value.get("prefix"))
        elif meta == "alternate":
            entity = AlternateType(*args)
        else:
            entity = StructType(*args)
        return self._add_type(entity)

    def _add_type(self, entity):
        self.types[entity.name] = entity
        self.order.append(entity)
        return entity

    @staticmethod
    def _features(where, value):
        names = [f if isinstance(f, str) else f.get("name") for f in value.get("features", [])]
        if len(set(names)) != len(names) or not all(n and NAME.match(n) for n in names):
            raise QapiError(where, "'features' is a list of different names")
        return names

    def _enum_values(self, expr):
        values = []
        for item in expr.value["data"]:
            name = item if isinstance(item, str) else item.get("name", "")
            if not ENUM_VALUE.match(name) or name in (v.name for v in values):
                raise QapiError(expr.where, f"bad or doubled enum value '{name}'")
            features = [] if isinstance(item, str) else self._features(expr.where, item)
            values.append(Member(name, None, features=features))
        return values

    # ---- second pass: contents ----

    def _type(self, where, ref):
        """The type that 'name' or ['name'] stands for."""
        if isinstance(ref, list):
            if len(ref) != 1:
                raise QapiError(where, "a list type is ['one-type']")
            return self._list(self._type(where, ref[0]))
        if not isinstance(ref, str) or ref not in self.types:
            raise QapiError(where, f"unknown type '{ref}'")
        return self.types[ref]

    def _list(self, element):
        if element.name not in self.lists:
            self.lists[element.name] = ListType(element)
        return self.lists[element.name]

    def _members(self, where, data):
        if not isinstance(data, dict):
            raise QapiError(where, "'data' is an object of members")
        members = []
        for key, value in data.items():
            optional = key.startswith("*")
            name = key[1:] if optional else key
            if not NAME.match(name) or name.startswith("has_"):
                raise QapiError(where, f"'{key}' is not a member name")
            features = []
            if isinstance(value, dict):
                features = self._features(where, value)
                value = value.get("type")
            members.append(Member(name, self._type(where, value), optional, features))
        return members

    def _struct_ref(self, expr, key, implicit_name):
        """A structure named by `key`, or the implicit one whose members stand there."""
        ref = expr.value[key]
        if isinstance(ref, dict):
            struct = StructType(implicit_name, expr.where, expr.doc, implicit=True)
            struct.own = self._members(expr.where, ref)
            self._no_clash(struct)
            return self._add_type(struct)
        struct = self._type(expr.where, ref)
        if struct.kind != "struct":
            raise QapiError(expr.where, f"'{key}': '{ref}' is not a structure")
        return struct

    @staticmethod
    def _no_clash(struct, extra=()):
        seen = set()
        for member in struct.members + list(extra):
            if c_name(member.name) in seen:
                raise QapiError(struct.where, f"'{struct.name}' has two members '{member.name}'")
            seen.add(c_name(member.name))

    def _define_enum(self, expr, enum):
        pass

    def _define_struct(self, expr, struct):
        if "base" in expr.value:
            struct.base = self._struct_ref(expr, "base", f"q_obj_{struct.name}_base")
        struct.own = self._members(expr.where, expr.value["data"])

    def _define_union(self, expr, union):
        union.base = self._struct_ref(expr, "base", f"q_obj_{union.name}_base")
        union.tag = expr.value["discriminator"]
        tag = next((m for m in union.base.members if m.name == union.tag), None)
        if not tag or tag.type.kind != "enum" or tag.optional:
            raise QapiError(expr.where, f"discriminator '{union.tag}' is not a mandatory "
                            "enumeration member of the base")
        values = [v.name for v in tag.type.values]
        for value, ref in expr.value["data"].items():
            ref = ref.get("type") if isinstance(ref, dict) else ref
            branch = self._type(expr.where, ref)
            if value not in values:
                raise QapiError(expr.where, f"branch '{value}' is no value of '{tag.type.name}'")
            if branch.kind != "struct" or branch.tag:
                raise QapiError(expr.where, f"branch '{value}': '{ref}' is not a structure")
            union.branches[value] = branch

    def _define_alternate(self, expr, alternate):
        alternate.branches = self._members(expr.where, expr.value["data"])
        values = [Member(b.name, None) for b in alternate.branches]
        alternate.kind_enum = self._add_type(
            EnumType(alternate.name + "Kind", expr.where, expr.doc, values, None))

    def _define_command(self, expr, command):
        value = expr.value
        if "data" in value:
            command.arg = self._arguments(expr, command.name, value.get("boxed", False))
        if "returns" in value:
            command.ret = self._type(expr.where, value["returns"])
        command.boxed = value.get("boxed", False)
        command.gen = value.get("gen", True)
        command.success = value.get("success-response", True)
        command.oob = value.get("allow-oob", False)
        command.preconfig = value.get("allow-preconfig", False)

    def _define_event(self, expr, event):
        if "data" in expr.value:
            event.arg = self._arguments(expr, event.name, expr.value.get("boxed", False))
        event.boxed = expr.value.get("boxed", False)

    def _arguments(self, expr, name, boxed):
        arg = self._struct_ref(expr, "data", f"q_obj_{name}_arg")
        if arg.tag and not boxed:
            raise QapiError(expr.where, "a union as arguments needs 'boxed': true")
        return arg

    # ---- third pass: documentation, clashes ----

    def _check_doc(self, meta, expr, entity):
        doc = expr.doc
        if meta == "enum":
            known = [v.name for v in entity.values]
        elif meta == "alternate":
            known = [b.name for b in entity.branches]
        elif meta in ("struct", "union"):
            base = entity.base
            known = [m.name for m in entity.own]
            known += [m.name for m in base.own] if base and base.implicit else []
            self._no_clash(entity)
            for branch in entity.branches.values():
                self._no_clash(entity, branch.members)
        else:
            known = [m.name for m in entity.arg.own] if entity.arg and entity.arg.implicit else []
        for name in known:
            if not " ".join(doc.args.get(name, [])).strip():
                raise QapiError(doc.where, f"'{doc.symbol}': '@{name}' is not documented")
        for name in doc.args:
            if name not in known:
                raise QapiError(doc.where, f"'{doc.symbol}' documents '@{name}', which it does "
                                "not have")
        if not " ".join(doc.text).strip():
            raise QapiError(doc.where, f"'{doc.symbol}': says nothing about itself")
        for name in entity.features:
            if not " ".join(doc.features.get(name, [])).strip():
                raise QapiError(doc.where, f"'{doc.symbol}': feature '@{name}' is not documented")
        if meta == "command" and entity.ret and doc.tag("Returns") is None:
            raise QapiError(doc.where, f"'{doc.symbol}' lacks 'Returns:'")
