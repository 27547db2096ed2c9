"""Pages as light as what they show: pictures without what draws nothing (light.yaml),
their styles told once; of a long table the first rows, the others a click away.
"""

import re
from functools import reduce
from pathlib import Path
from zlib import crc32

import yaml

LEFT = yaml.safe_load(Path(__file__).with_name("light.yaml").read_text("utf-8"))
ALIKE = '<use [^>]*( class="\\w+")/>(?:<use [^>]*\\1/>)+'  # dots of one kind
NAME = '(?<=["#])[\\w.-]+-\\w*[0-9a-f]{10}(?=[")])'  # of what is drawn again


def named(text):
    """A short name, the same on every page."""
    return f"s{crc32(text.encode()):x}"


def lighter(text, what):
    """A text, without what LEFT says of it."""
    return reduce(lambda t, pair: re.sub(*pair, t), LEFT[what], text)


def light(text):
    """The body of a page, or an SVG, lighter; its first <style> has the styles."""
    sheet = {}

    def styled(m):
        sheet[named(m[1])] = m[1]
        return f'class="{named(m[1])}"'

    def drawn(m):
        path = lambda d: re.sub(r"(\d\d\.\d)\d+| ?([A-Za-z]) ?", r"\1\2", d[0])
        text = re.sub('(?<= d=")[^"]*', path, lighter(m[0], "picture"))
        text = re.sub(NAME, lambda i: named(i[0]), text)
        text = re.sub('style="([^"]*)"', styled, text)
        return re.sub(ALIKE, lambda m: f"<g{m[1]}>{m[0].replace(m[1], '')}</g>", text)

    text = re.sub("(?s)<svg.*?</svg>", drawn, lighter(text, "page"))
    rules = "".join(f".{k}.{k}.{k}{{{v}}}" for k, v in sheet.items())
    return text.replace("</style>", f"{rules}</style>", 1)
