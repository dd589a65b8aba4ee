#!/usr/bin/env python3
"""Makes the manual page or the bash completion of the emulator from its table of options.

    cmdline-docs.py man|bash EMULATOR OUTPUT

The table comes from EMULATOR itself (-x-list-options: name, argument and help of each option), so
that what is documented is what there is.
"""
import subprocess
import sys
from pathlib import Path

INTRO = """.TH SWNIC-SYSTEM-X86_64 1 "" "swnic" "User commands"
.SH NAME
swnic-system-x86_64 \\- a PC without a CPU around a virtio-net-pci device
.SH SYNOPSIS
.B swnic-system-x86_64
.RI [ options ]
.SH DESCRIPTION
The device is driven by qtest and QMP clients.  Options may begin with one or two dashes; a comma
in a value is doubled; "help" as a value lists what is possible, as in
.B \\-device help
or
.BR "\\-device virtio-net-pci,help" .
They are handled phase by phase (objects, character devices, network back ends, machine, devices,
monitors), whatever their order.
.SH OPTIONS
"""
OUTRO = """.SH EXIT STATUS
0 when it was asked to end, 1 after an error at start-up, which is one line on standard error.
.SH SEE ALSO
The QMP reference and the other documents in the documentation folder of swnic.
"""
# What the shell offers for the first word of a value.
HELP_LISTS = {"device": "name", "netdev": "word", "object": "word", "chardev": "word",
              "machine": "word", "M": "word"}


def options(emulator):
    out = subprocess.run([emulator, "-x-list-options"], check=True, capture_output=True, text=True)
    return [line.split("\t") for line in out.stdout.splitlines()]


def roff(text):
    return text.replace("\\", "\\\\").replace("-", "\\-").replace("'", "\\(aq")


def man(rows):
    body = []
    for name, argument, text in rows:
        if not text:
            continue
        head = f".BI \"\\-{roff(name)} \" \"{roff(argument)}\"" if argument \
            else f".B \\-{roff(name)}"
        body.append(f".TP\n{head}\n")
        body.append(roff(text) + "\n")
    return INTRO + "".join(body) + OUTRO


def bash(rows):
    names = " ".join("-" + name for name, _, _ in rows)
    files = "|".join("-" + n for n, a, _ in rows if a.startswith("FILE"))
    listed = "|".join("-" + n for n in HELP_LISTS)
    return f"""# bash completion for swnic-system-x86_64, made from its table of options
_swnic_system()
{{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
    case $prev in
    {files})
        COMPREPLY=($(compgen -f -- "$cur"))
        return ;;
    {listed})
        local words
        words=$("${{COMP_WORDS[0]}}" "$prev" help 2>/dev/null |
            sed -n 's/^name "\\([^"]*\\)".*/\\1/p; s/^ *\\([a-z0-9][-a-z0-9._]*\\)\\( .*\\)\\?$/\\1/p')
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return ;;
    esac
    COMPREPLY=($(compgen -W "{names}" -- "$cur"))
}}
complete -F _swnic_system swnic-system-x86_64
"""


def main():
    kind, emulator, output = sys.argv[1:]
    rows = options(emulator)
    Path(output).write_text({"man": man, "bash": bash}[kind](rows), encoding="utf-8")


if __name__ == "__main__":
    main()
