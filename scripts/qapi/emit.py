"""C output: types, visitors, commands and events, as tables for qapi/qapi-value.c."""
from .schema import c_name

BANNER = "/* Made by scripts/qapi-gen.py from the schema; do not edit. */\n"


def header(guard, includes, body):
    """A header file around `body`."""
    lines = "".join(f"#include {name}\n" for name in includes)
    return f"{BANNER}#ifndef {guard}\n#define {guard}\n\n{lines}\n{body}\n#endif\n"


def source(includes, body):
    lines = "".join(f"#include {name}\n" for name in includes)
    return f"{BANNER}{lines}\n{body}"


def ordered_structs(schema):
    """Structures, unions and alternates such that what is held by value comes first."""
    done, out = set(), []

    def visit(entity):
        if entity.name in done:
            return
        done.add(entity.name)
        if entity.kind == "struct":
            by_value = list(entity.branches.values())
        else:
            by_value = [b.type for b in entity.branches if b.type.kind == "struct"]
        for inner in by_value:
            visit(inner)
        out.append(entity)

    for entity in schema.order:
        if entity.kind in ("struct", "alternate"):
            visit(entity)
    return out


def builtin_list(list_type):
    """Lists of built-in types are declared by hand in qapi/util.h."""
    return list_type.element.kind == "builtin"


# ---- types ----

def member_decl(member, indent="    "):
    out = ""
    if member.has:
        out += f"{indent}bool has_{c_name(member.name)};\n"
    return out + f"{indent}{member.type.slot()}{c_name(member.name)};\n"


def enum_decl(enum):
    name = c_name(enum.name)
    values = "".join(f"    {enum.const(v.name)},\n" for v in enum.values)
    return (f"typedef enum {name} {{\n{values}    {enum.prefix}__MAX\n}} {name};\n"
            f"extern const char *const {name}_names[{enum.prefix}__MAX + 1];\n"
            f"static inline const char *{name}_str({name} value)\n{{\n"
            f"    return {name}_names[value];\n}}\n\n")


def struct_decl(struct):
    name = c_name(struct.name)
    body = "".join(member_decl(m) for m in struct.members)
    if struct.tag:
        branches = "".join(f"        {c_name(b.name)} {c_name(v)};\n"
                           for v, b in struct.branches.items() if b.members)
        body += f"    union {{\n{branches or '        char empty;' + chr(10)}    }} u;\n"
    out = f"struct {name} {{\n{body or '    char empty;' + chr(10)}}};\n"
    if struct.base and not struct.base.implicit:
        base = c_name(struct.base.name)
        out += (f"static inline {base} *qapi_{name}_base({name} *obj)\n{{\n"
                f"    return ({base} *)obj; /* the base's members come first */\n}}\n")
    return out + "\n"


def alternate_decl(alternate):
    name = c_name(alternate.name)
    branches = ""
    for b in alternate.branches:
        slot = f"{c_name(b.type.name)} " if b.type.kind == "struct" else b.type.slot()
        branches += f"        {slot}{c_name(b.name)};\n"
    return (f"struct {name} {{\n    {c_name(alternate.kind_enum.name)} type;\n"
            f"    union {{\n{branches}    }} u;\n}};\n\n")


def public_types(schema):
    """Types that have qapi_free_ and friends: all named ones and their lists."""
    named = [t for t in schema.order
             if t.kind == "alternate" or t.kind == "struct" and not t.implicit]
    return named + list(schema.lists.values())


def types_header(schema):
    body = "".join(enum_decl(t) for t in schema.order if t.kind == "enum")
    structs = ordered_structs(schema)
    body += "".join(f"typedef struct {c_name(t.name)} {c_name(t.name)};\n" for t in structs)
    lists = [t for t in schema.lists.values() if not builtin_list(t)]
    body += "".join(f"typedef struct {c_name(t.name)} {c_name(t.name)};\n" for t in lists) + "\n"
    for t in lists:
        body += (f"struct {c_name(t.name)} {{\n    {c_name(t.name)} *next;\n"
                 f"    {t.element.slot()}value;\n}};\n")
    body += "\n"
    body += "".join(struct_decl(t) if t.kind == "struct" else alternate_decl(t) for t in structs)
    for t in public_types(schema):
        name = c_name(t.name)
        if name != "strList":
            body += f"void qapi_free_{name}({name} *obj);\n"
        body += f"G_DEFINE_AUTOPTR_CLEANUP_FUNC({name}, qapi_free_{name})\n"
    return header("QAPI_TYPES_H", ['<glib.h>', '<stdbool.h>', '<stdint.h>', '<json-c/json.h>',
                                   '"qapi/util.h"'], body)


def has_offset(owner, member):
    return f"offsetof({owner}, has_{c_name(member.name)})" if member.has else "-1"


def member_rows(owner, members):
    return "".join(
        f'    {{"{m.name}", &{m.type.desc()}, offsetof({owner}, {c_name(m.name)}),\n'
        f"     {has_offset(owner, m)}, {'true' if m.optional else 'false'}}},\n" for m in members)


def enum_table(enum):
    name = c_name(enum.name)
    rows = "".join(f'    [{enum.const(v.name)}] = "{v.name}",\n' for v in enum.values)
    return (f"const char *const {name}_names[{enum.prefix}__MAX + 1] = {{\n{rows}}};\n"
            f"const QapiType {enum.desc()} = {{\n"
            f'    .name = "{enum.name}", .kind = QAPI_KIND_ENUM, .size = sizeof({name}),\n'
            f"    .names = {name}_names,\n}};\n\n")


def struct_table(struct):
    name = c_name(struct.name)
    kind = "UNION" if struct.tag else "STRUCT"
    members = struct.members
    out = ""
    if members:
        out += (f"static const QapiMember members_{name}[] = {{\n{member_rows(name, members)}}};\n")
    extra = f"    .members = members_{name}, .member_count = {len(members)},\n" if members else ""
    if struct.tag:
        index = [m.name for m in members].index(struct.tag)
        enum = members[index].type
        rows = "".join(f"    [{enum.const(v)}] = &{b.desc()},\n"
                       for v, b in struct.branches.items() if b.members)
        out += (f"static const QapiType *const branches_{name}[{enum.prefix}__MAX] = {{\n"
                f"{rows}}};\n")
        extra += (f"    .tag = {index}, .union_offset = offsetof({name}, u),\n"
                  f"    .branches = branches_{name},\n")
    return out + (f"const QapiType {struct.desc()} = {{\n"
                  f'    .name = "{struct.name}", .kind = QAPI_KIND_{kind}, '
                  f".size = sizeof({name}),\n{extra}}};\n\n")


def alternate_table(alternate):
    name = c_name(alternate.name)
    rows = "".join(f'    {{"{b.name}", &{b.type.desc()}, 0, -1, false}},\n'
                   for b in alternate.branches)
    return (f"static const QapiMember members_{name}[] = {{\n{rows}}};\n"
            f"const QapiType {alternate.desc()} = {{\n"
            f'    .name = "{alternate.name}", .kind = QAPI_KIND_ALTERNATE, '
            f".size = sizeof({name}),\n    .members = members_{name}, "
            f".member_count = {len(alternate.branches)},\n"
            f"    .union_offset = offsetof({name}, u),\n}};\n\n")


def list_table(list_type):
    return (f"const QapiType {list_type.desc()} = {{\n"
            f'    .name = "{list_type.name}", .kind = QAPI_KIND_LIST, .size = sizeof(void *),\n'
            f"    .element = &{list_type.element.desc()},\n}};\n\n")


def types_source(schema):
    body = "".join(enum_table(t) for t in schema.order if t.kind == "enum")
    body += "".join(list_table(t) for t in schema.lists.values())
    body += "".join(struct_table(t) if t.kind == "struct" else alternate_table(t)
                    for t in ordered_structs(schema))
    for t in public_types(schema):
        name = c_name(t.name)
        if name != "strList":
            body += (f"void qapi_free_{name}({name} *obj)\n{{\n"
                     f"    qapi_value_free(&{t.desc()}, obj);\n}}\n\n")
    return source(['<stddef.h>', '"qapi/qapi-types.h"', '"qapi/qapi-visit.h"'], body)


# ---- visitors ----

def visit_header(schema):
    body = ""
    for t in schema.order + list(schema.lists.values()):
        body += f"extern const QapiType {t.desc()};\n"
    body += "\n"
    for t in public_types(schema):
        name = c_name(t.name)
        body += (f"{name} *qapi_parse_{name}(json_object *in, QapiInput mode, GError **errp);\n"
                 f"json_object *qapi_build_{name}(const {name} *obj);\n")
    return header("QAPI_VISIT_H", ['"qapi/qapi-types.h"'], body)


def visit_source(schema):
    body = ""
    for t in public_types(schema):
        name = c_name(t.name)
        body += (f"{name} *qapi_parse_{name}(json_object *in, QapiInput mode, GError **errp)\n{{\n"
                 f"    return qapi_value_parse(&{t.desc()}, NULL, in, mode, errp);\n}}\n\n"
                 f"json_object *qapi_build_{name}(const {name} *obj)\n{{\n"
                 f"    return qapi_value_build(&{t.desc()}, obj);\n}}\n\n")
    return source(['"qapi/qapi-visit.h"'], body)


# ---- commands and events ----

def parameters(arg, boxed, const_str=True):
    """C parameters for the members of `arg`."""
    if not arg or not arg.members and not boxed:
        return []
    if boxed:
        return [f"{c_name(arg.name)} *arg"]
    out = []
    for m in arg.members:
        if m.has:
            out.append(f"bool has_{c_name(m.name)}")
        const = "const " if const_str and m.type.name == "str" else ""
        out.append(f"{const}{m.type.slot()}{c_name(m.name)}")
    return out


def command_prototype(command):
    name = "qmp_" + c_name(command.name)
    if not command.gen:
        return f"void {name}(json_object *args, json_object **ret, GError **errp)"
    ret = command.ret.slot() if command.ret else "void "
    args = ", ".join(parameters(command.arg, command.boxed) + ["GError **errp"])
    return f"{ret}{name}({args})"


def commands_header(schema):
    body = "".join(command_prototype(c) + ";\n" for c in schema.commands.values())
    return header("QAPI_COMMANDS_H", ['"qapi/qapi-types.h"'], body)


def marshaller(command):
    name = c_name(command.name)
    head = (f"static void marshal_{name}(json_object *in, json_object **ret, GError **errp)\n{{\n")
    if not command.gen:
        return head + f"    qmp_{name}(in, ret, errp);\n}}\n\n"
    arg = command.arg.desc() if command.arg else "no_arguments"
    ctype = c_name(command.arg.name) if command.arg else "NoArguments"
    call = []
    if command.arg and command.boxed:
        call = ["&arg"]
    elif command.arg:
        for m in command.arg.members:
            call += [f"arg.has_{c_name(m.name)}"] if m.has else []
            call.append(f"arg.{c_name(m.name)}")
    call = f"qmp_{name}({', '.join(call + ['&err'])})"
    out = head + f"    {ctype} arg = {{0}};\n    GError *err = NULL;\n"
    if command.ret:
        out += f"    {command.ret.slot()}result;\n"
    out += (f"\n    if (!qapi_struct_parse(&{arg}, in, QAPI_INPUT_JSON, &arg, errp)) {{\n"
            f"        return;\n    }}\n")
    if command.ret:
        out += (f"    result = {call};\n"
                f"    if (!err) {{\n"
                f"        *ret = qapi_slot_build(&{command.ret.desc()}, &result);\n    }}\n"
                f"    qapi_slot_clear(&{command.ret.desc()}, &result);\n")
    else:
        out += f"    {call};\n"
    return out + (f"    qapi_struct_clear(&{arg}, &arg);\n"
                  f"    if (err) {{\n        g_propagate_error(errp, err);\n    }}\n}}\n\n")


def command_flags(command):
    flags = [name for name, on in (("QMP_NO_SUCCESS_RESPONSE", not command.success),
                                   ("QMP_ALLOW_OOB", command.oob),
                                   ("QMP_ALLOW_PRECONFIG", command.preconfig),
                                   ("QMP_RETURNS_ANY", command.gen and command.ret
                                    and command.ret.name == "any")) if on]
    return " | ".join(flags) or "0"


def commands_source(schema):
    body = ('typedef struct NoArguments {\n    char empty;\n} NoArguments;\n'
            'static const QapiType no_arguments = {\n    .name = "arguments", '
            '.kind = QAPI_KIND_STRUCT, .size = sizeof(NoArguments),\n};\n\n')
    body += "".join(marshaller(c) for c in schema.commands.values())
    rows = "".join(f'    {{"{c.name}", marshal_{c_name(c.name)}, {command_flags(c)}}},\n'
                   for _, c in sorted(schema.commands.items()))
    body += f"const QmpCommand qmp_commands[] = {{\n{rows}    {{NULL}},\n}};\n"
    return source(['"qapi/monitor.h"', '"qapi/qapi-commands.h"', '"qapi/qapi-visit.h"'], body)


def event_prototype(event):
    args = ", ".join(parameters(event.arg, event.boxed)) or "void"
    return f"void qapi_event_send_{c_name(event.name).lower()}({args})"


def events_header(schema):
    body = "".join(event_prototype(e) + ";\n" for e in schema.events.values())
    body += "\n/* Every event's name, sorted, NULL-ended. */\n"
    body += "extern const char *const qapi_event_names[];\n"
    return header("QAPI_EVENTS_H", ['"qapi/qapi-types.h"'], body)


def event_sender(event):
    out = event_prototype(event) + "\n{\n"
    if not event.arg or not event.arg.members:
        return out + f'    qmp_emit_event("{event.name}", NULL);\n}}\n\n'
    desc = event.arg.desc()
    if event.boxed:
        return out + f'    qmp_emit_event("{event.name}", qapi_value_build(&{desc}, arg));\n}}\n\n'
    inits = ""
    for m in event.arg.members:
        if m.has:
            inits += f"        .has_{c_name(m.name)} = has_{c_name(m.name)},\n"
        cast = "(char *)" if m.type.name == "str" else ""
        inits += f"        .{c_name(m.name)} = {cast}{c_name(m.name)},\n"
    return out + (f"    {c_name(event.arg.name)} data = {{\n{inits}    }};\n\n"
                  f'    qmp_emit_event("{event.name}", qapi_value_build(&{desc}, &data));\n}}\n\n')


def events_source(schema):
    body = "".join(event_sender(e) for e in schema.events.values())
    names = "".join(f'    "{name}",\n' for name in sorted(schema.events))
    body += f"const char *const qapi_event_names[] = {{\n{names}    NULL,\n}};\n"
    return source(['"qapi/monitor.h"', '"qapi/qapi-events.h"', '"qapi/qapi-visit.h"'], body)
