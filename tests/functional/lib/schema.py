"""What query-qmp-schema says, as code: makes values of a type, wrong ones too, and checks answers."""

SCALARS = {"string": "x", "int": 1, "number": 1.5, "boolean": True, "null": None}
PYTHON = {"string": str, "int": int, "number": (int, float), "boolean": bool, "null": type(None)}


class Schema:
    def __init__(self, entities):
        self.by_name = {e["name"]: e for e in entities}
        assert len(self.by_name) == len(entities), "two entities of one name"

    def commands(self):
        return sorted(n for n, e in self.by_name.items() if e["meta-type"] == "command")

    def events(self):
        return sorted(n for n, e in self.by_name.items() if e["meta-type"] == "event")

    def arguments(self, command):
        """The arguments' type."""
        return self.by_name[self.by_name[command]["arg-type"]]

    def members(self, type_, value=None):
        """Members of an object type, those of the branch that @value chose included."""
        found = {m["name"]: m for m in type_["members"]}
        tag = type_.get("tag")
        if tag and value and tag in value:
            for variant in type_["variants"]:
                if variant["case"] == value[tag]:
                    found.update(self.members(self.by_name[variant["type"]]))
        return found

    def check_references(self):
        """Every type that is mentioned exists, and every one that exists is mentioned."""
        used = set()
        for e in self.by_name.values():
            names = [m["type"] for m in e.get("members", []) if isinstance(m, dict) and "type" in m]
            names += [v["type"] for v in e.get("variants", [])]
            names += [e[k] for k in ("arg-type", "ret-type", "element-type") if k in e]
            for name in names:
                assert name in self.by_name, f"{e['name']}: no type {name}"
            used.update(n for n in names if n != e["name"])
        for name, e in self.by_name.items():
            assert e["meta-type"] in ("command", "event") or name in used, f"{name} is not used"

    def make(self, name, depth=0):
        """A value of type @name with its mandatory members only."""
        e = self.by_name[name]
        meta = e["meta-type"]
        if meta == "builtin":
            return SCALARS.get(e["json-type"], "x")
        if meta == "enum":
            return e["members"][0]["name"] if "members" in e else e["values"][0]
        if meta == "array":
            return [self.make(e["element-type"], depth + 1)]
        if meta == "alternate":
            return self.make(e["members"][0]["type"], depth + 1)
        value = {m["name"]: self.make(m["type"], depth + 1)
                 for m in e["members"] if "default" not in m}
        for variant in e.get("variants", []):
            if variant["case"] == value[e["tag"]]:
                value.update(self.make(variant["type"], depth + 1))
        return value

    def accepts(self, name, value):
        """Why @value is not of type @name; None if it is."""
        e = self.by_name[name]
        meta = e["meta-type"]
        if meta == "builtin":
            kind = e["json-type"]
            if kind == "value":
                return None
            ok = isinstance(value, PYTHON[kind]) and (kind == "boolean"
                                                      or not isinstance(value, bool))
            return None if ok else f"{value!r} is no {kind}"
        if meta == "enum":
            names = [m["name"] for m in e["members"]] if "members" in e else e["values"]
            return None if value in names else f"{value!r} is not in {name}"
        if meta == "array":
            if not isinstance(value, list):
                return f"{value!r} is no array"
            return next(filter(None, (self.accepts(e["element-type"], v) for v in value)), None)
        if meta == "alternate":
            return None if any(self.accepts(m["type"], value) is None for m in e["members"]) \
                else f"{value!r} is no {name}"
        if not isinstance(value, dict):
            return f"{value!r} is no object"
        members = self.members(e, value)
        for key, member in members.items():
            if key not in value:
                if "default" not in member:
                    return f"'{key}' is missing"
            elif why := self.accepts(member["type"], value[key]):
                return f"'{key}': {why}"
        extra = set(value) - set(members)
        return f"'{extra.pop()}' is too much" if extra else None

    def wrong_values(self, name):
        """Values that type @name does not accept."""
        candidates = [None, True, 17, -1, 2 ** 63, 2 ** 64, 1.5, 1e300, "no such value", "", "\u20ac",
                      [], [None], {}, {"x": 1}, [[[[]]]], {"type": "nonsense"}]
        return [c for c in candidates if self.accepts(name, c) is not None]
