"""query-qmp-schema: the schema as SchemaInfo values, as JSON text in a C string.

Types are listed under their own names; only what commands and events reach is listed.
"""
import json

from .emit import header, source
from .schema import BUILTINS


def with_features(info, features):
    if features:
        info["features"] = features
    return info


class Introspection:
    def __init__(self, schema):
        self.schema = schema
        self.infos = []
        self.seen = set()
        for command in schema.commands.values():
            info = {"name": command.name, "meta-type": "command",
                    "arg-type": self.use(command.arg), "ret-type": self.use(command.ret)}
            if command.oob:
                info["allow-oob"] = True
            self.infos.append(with_features(info, command.features))
        for event in schema.events.values():
            self.infos.append(with_features(
                {"name": event.name, "meta-type": "event", "arg-type": self.use(event.arg)},
                event.features))

    def use(self, type_):
        """The name under which `type_` is listed; lists it at first use."""
        if type_ is None:
            return self.empty()
        name = f"[{self.use(type_.element)}]" if type_.kind == "list" else type_.name
        if type_.kind == "builtin" and BUILTINS[name][1] == "int":
            name = "int"
        if name not in self.seen:
            self.seen.add(name)
            info = {"name": name}
            self.infos.append(info)
            getattr(self, "_" + type_.kind)(type_, info)
            with_features(info, type_.features)
        return name

    def empty(self):
        if "q_empty" not in self.seen:
            self.seen.add("q_empty")
            self.infos.append({"name": "q_empty", "meta-type": "object", "members": []})
        return "q_empty"

    def _builtin(self, type_, info):
        info.update({"meta-type": "builtin", "json-type": BUILTINS[type_.name][1]})

    def _list(self, type_, info):
        info.update({"meta-type": "array", "element-type": self.use(type_.element)})

    def _enum(self, type_, info):
        info["meta-type"] = "enum"
        info["members"] = [with_features({"name": v.name}, v.features) for v in type_.values]
        info["values"] = [v.name for v in type_.values]

    def _alternate(self, type_, info):
        info["meta-type"] = "alternate"
        info["members"] = [{"type": self.use(b.type)} for b in type_.branches]

    def _struct(self, type_, info):
        info["meta-type"] = "object"
        info["members"] = []
        for m in type_.members:
            member = {"name": m.name, "type": self.use(m.type)}
            if m.optional:
                member["default"] = None
            info["members"].append(with_features(member, m.features))
        if type_.tag:
            info["tag"] = type_.tag
            tag = next(m for m in type_.members if m.name == type_.tag)
            info["variants"] = [{"case": v.name, "type": self.use(type_.branches.get(v.name))}
                                for v in tag.type.values]


def c_string(text):
    """`text` as adjacent C string literals, a line at a time."""
    lines = [text[i:i + 80] for i in range(0, len(text), 80)]
    return "\n".join('    "' + s.replace("\\", "\\\\").replace('"', '\\"') + '"' for s in lines)


def introspect_header():
    return header("QAPI_INTROSPECT_H", [], "/* JSON text of query-qmp-schema's answer. */\n"
                  "extern const char qapi_schema_json[];\n")


def introspect_source(schema):
    text = json.dumps(Introspection(schema).infos)
    return source(['"qapi/qapi-introspect.h"'],
                  f"const char qapi_schema_json[] =\n{c_string(text)};\n")
