#!/usr/bin/env python3
"""Renders chats for a test that asks over standard input: one JSON object a line, one answer a line.

Question: `{"now", "special_tokens", "templates": [source], "jobs": [[index of a template, body as JSON text]]}`.
Answer: `{"results": [...]}`, each `{"text"}`, `{"fails": why}` where the template fails, `{"refuses": why}` where the engine refuses
the request before or after that, or `{"skips": why}` where a limit of this process was met.
"""

import datetime
import json
import resource
import signal
import sys

from engine import Clock, Refused, TemplateFailed
from preparation import render

SECONDS = 5
MEMORY = 4 << 30


class TooSlow(BaseException):
    """Not an `Exception`, so that nothing on the way takes it for an error of the template."""


def stop(*_):
    raise TooSlow


def answer(source, special_tokens, body):
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        text = render(source, special_tokens, json.loads(body))
        text.encode()
        return {"text": text}
    except UnicodeEncodeError:
        return {"skips": "half a surrogate pair"}
    except (TooSlow, MemoryError) as error:
        return {"skips": type(error).__name__}
    except TemplateFailed as error:
        if isinstance(error.__cause__, (MemoryError, RecursionError)):
            return {"skips": str(error)[:200]}
        return {"fails": str(error)[:200]}
    except Refused as error:
        return {"refuses": str(error)[:200]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, stop)
    for line in sys.stdin:
        question = json.loads(line)
        Clock.now = datetime.datetime.fromisoformat(question["now"])
        special_tokens, templates = question["special_tokens"], question["templates"]
        results = [answer(templates[i], special_tokens, body) for i, body in question["jobs"]]
        print(json.dumps({"results": results}), flush=True)


if __name__ == "__main__":
    main()
