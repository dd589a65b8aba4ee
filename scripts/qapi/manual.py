"""The QMP reference manual in Markdown, from the schema's documentation comments."""


def type_ref(type_):
    if type_.kind == "list":
        return f"array of {type_ref(type_.element)}"
    if type_.kind == "builtin":
        return f"`{type_.name}`"
    if type_.kind == "struct" and type_.implicit:
        return "object"
    return f"[`{type_.name}`](#{type_.name.lower()})"


def paragraph(lines):
    return "\n".join(lines).strip().replace("@", "")


def member_lines(doc, members):
    out = []
    for m in members:
        text = " ".join(paragraph(doc.args.get(m.name, [])).split())
        kind = f" ({type_ref(m.type)}{', optional' if m.optional else ''})" if m.type else ""
        out.append(f"- `{m.name}`{kind}: {text}")
    return out


def section(title, doc, members, extra):
    out = [f"### {title}", "", paragraph(doc.text), ""]
    rows = member_lines(doc, members)
    out += rows + [""] if rows else []
    out += extra + [""] if extra else []
    for name, lines in doc.features.items():
        out += [f"Feature `{name}`: {' '.join(lines).strip()}", ""]
    for tag, lines in doc.tags:
        if tag not in ("Since", "Returns"):
            out += [f"{tag}: {paragraph(lines)}", ""]
    return out


def arguments(entity):
    """(members documented here, lines about members documented elsewhere)"""
    if not entity.arg:
        return [], []
    if entity.arg.implicit:
        return entity.arg.members, []
    return [], [f"Arguments: the members of {type_ref(entity.arg)}."]


def manual(schema):
    out = ["# QMP reference", "", "Made from `qapi/*.json` by `scripts/qapi-gen.py`.", "",
           "## Commands", ""]
    for name, command in sorted(schema.commands.items()):
        members, extra = arguments(command)
        if command.ret:
            extra = extra + [f"Returns {type_ref(command.ret)}: {command.doc.tag('Returns')}"]
        if command.oob:
            extra = extra + ["", "May run out of band (`exec-oob`)."]
        out += section(name, command.doc, members, extra)
    out += ["## Events", ""]
    for name, event in sorted(schema.events.items()):
        out += section(name, event.doc, *arguments(event))
    out += ["## Types", ""]
    for type_ in sorted((t for t in schema.types.values() if t.doc), key=lambda t: t.name):
        if type_.kind == "struct" and type_.implicit or type_.name.endswith("Kind"):
            continue
        members, extra = [], []
        if type_.kind == "enum":
            members = type_.values
        elif type_.kind == "alternate":
            members = type_.branches
        else:
            base = type_.base
            members = (base.own if base and base.implicit else []) + type_.own
            if base and not base.implicit:
                extra = [f"And the members of {type_ref(base)}."]
            extra += [f"- where `{type_.tag}` is `{value}`: the members of {type_ref(branch)}"
                      for value, branch in type_.branches.items()]
        out += section(type_.name, type_.doc, members, extra)
    return "\n".join(out).rstrip() + "\n"
