"""Takes a migration stream apart by nothing but the description at its end (and, for RAM, whose
pages no description describes, the format of RAM sections)."""
import json
import struct


class Field:
    def __init__(self, path, at, size, kind, data):
        self.path, self.at, self.size, self.kind, self.data = path, at, size, kind, data

    @property
    def value(self):
        return int.from_bytes(self.data, "big")


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        piece = self.data[self.at:self.at + size]
        if len(piece) != size:
            raise ValueError(f"the stream ends at {len(self.data)}, {self.at + size} is needed")
        self.at += size
        return piece

    def number(self, size):
        return int.from_bytes(self.take(size), "big")

    def name(self):
        return self.take(self.number(1)).decode()


def description(data):
    """The JSON at the end, and where its section begins."""
    at = len(data)
    while True:
        at = data.rfind(b"\x00\x06", 0, at)
        if at < 0:
            raise ValueError("no description")
        size = struct.unpack(">I", data[at + 2:at + 6])[0] if at + 6 <= len(data) else -1
        if at + 6 + size == len(data):
            return json.loads(data[at + 6:]), at


def unfold(fields):
    for field in fields:
        if "array_len" in field:
            for i in range(field["array_len"]):
                yield field, f"{field['name']}[{i}]"
        elif "index" in field:
            yield field, f"{field['name']}[{field['index']}]"
        else:
            yield field, field["name"]


def read_fields(reader, entry, path, out):
    for field, name in unfold(entry["fields"]):
        where = f"{path}.{name}" if path else name
        begin = reader.at
        if field["type"] == "struct":
            read_fields(reader, field["struct"], where, out)
        else:
            out.append(Field(where, begin, field["size"], field["type"],
                             reader.take(field["size"])))
        if reader.at - begin != field["size"]:
            raise ValueError(f"{where}: {reader.at - begin} bytes, described are {field['size']}")
    for sub in entry.get("subsections", []):
        if reader.number(1) != 5:
            raise ValueError(f"{path}: no subsection where {sub['vmsd_name']} is described")
        name, version = reader.name(), reader.number(4)
        if (name, version) != (sub["vmsd_name"], sub["version"]):
            raise ValueError(f"{path}: subsection {name} version {version} instead of "
                             f"{sub['vmsd_name']} version {sub['version']}")
        read_fields(reader, sub, f"{path}/{name}" if path else name, out)


def read_ram(reader, sizes):
    """Up to the end mark; counts pages."""
    pages = zeros = 0
    while True:
        entry = reader.number(8)
        flags = entry & 0xfff
        if flags == 0x10:
            return pages, zeros
        if flags == 0x04:
            left = entry - flags
            while left:
                name = reader.name()
                sizes[name] = reader.number(8)
                left -= sizes[name]
            continue
        if not flags & 0x20:
            reader.name()
        if flags & 0x08:
            reader.take(4096)
            pages += 1
        else:
            reader.take(1)
            zeros += 1


class Stream:
    def __init__(self, data):
        self.description, end = description(data)
        self.devices = {(d["name"], d["instance_id"]): d for d in self.description["devices"]}
        self.sections = {}   # idstr: list of Field
        self.bounds = {}     # idstr: (first byte of the section, of its payload, of its footer)
        self.ram_sizes, self.pages, self.zeros = {}, 0, 0
        reader = self.reader = Reader(data)
        if reader.take(8) != b"QEVM\x00\x00\x00\x03":
            raise ValueError("no migration stream")
        if reader.number(1) != 7:
            raise ValueError("no configuration")
        self.machine = reader.take(reader.number(4)).decode()
        while reader.at < end:
            self.read_section()
        if reader.at != end:
            raise ValueError(f"sections end at {reader.at}, not {end}")

    def read_section(self):
        reader = self.reader
        begin = reader.at
        kind, number = reader.number(1), reader.number(4)
        if kind in (1, 4):
            name, instance, version = reader.name(), reader.number(4), reader.number(4)
        payload = reader.at
        if kind == 4:
            entry = self.devices[(name, instance)]
            if version != entry["version"]:
                raise ValueError(f"{name}: version {version}, described is {entry['version']}")
            fields = []
            read_fields(reader, entry, "", fields)
            self.sections[name] = fields
        elif kind in (1, 2, 3):
            pages, zeros = read_ram(reader, self.ram_sizes)
            self.pages += pages
            self.zeros += zeros
            name = "ram"
        else:
            raise ValueError(f"section type {kind:#x}")
        self.bounds[name] = (begin, payload, reader.at)
        if (reader.number(1), reader.number(4)) != (0x7e, number):
            raise ValueError(f"section {number}: no footer at {reader.at - 5}")

    def field(self, section, suffix):
        found = [f for f in self.sections[section] if f.path.endswith(suffix)]
        if len(found) != 1:
            raise KeyError(f"{section}: {len(found)} fields end with {suffix}")
        return found[0]
