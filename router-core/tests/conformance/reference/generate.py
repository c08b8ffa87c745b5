#!/usr/bin/env python3
"""Writes `expected.jsonl`: what the engine renders for every conversation with every template of the conformance set.

Run by `scripts/conformance.sh`. One line a pair, with the text, or with what makes the engine answer with an error: the template or the
request itself.
"""

import datetime
import importlib.metadata
import json
import pathlib
import platform

from engine import Clock, Refused, TemplateFailed
from preparation import render

ENGINE = "vLLM 0.32.0 with transformers 5.16 to 5.19"
NOW = datetime.datetime(2026, 1, 1)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def line(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent
    Clock.now = NOW
    conversations = [
        json.loads(text) for text in (folder / "conversations.jsonl").open(encoding="utf-8")
    ]
    versions = {name: importlib.metadata.version(name) for name in ("jinja2", "markupsafe")}
    lines = [
        line(
            {
                "origin": "jinja2 renders what reference/preparation.py makes of each body; made by scripts/conformance.sh",
                "engine": ENGINE,
                "python": platform.python_version(),
                **versions,
                "now": NOW.isoformat(),
                "special_tokens": SPECIAL_TOKENS,
            }
        )
    ]
    texts = 0
    for path in sorted((folder / "templates").glob("*.jinja")):
        source = path.read_text("utf-8")
        for conversation in conversations:
            try:
                outcome = {"text": render(source, SPECIAL_TOKENS, conversation["body"])}
                texts += 1
            except TemplateFailed:
                outcome = {"fails": "template"}
            except Refused:
                outcome = {"fails": "request"}
            lines.append(line({"template": path.stem, "conversation": conversation["id"], **outcome}))
    (folder / "expected.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{len(lines) - 1} pairs, {texts} with text")


if __name__ == "__main__":
    main()
