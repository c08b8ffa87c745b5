"""Chat templates as the engine renders them: jinja2 in an immutable sandbox, set up as transformers sets it up for vLLM.

Follows transformers 5.16 to 5.19 (`utils/chat_template_utils.py`), which vLLM 0.32 asks for.
"""

import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.sandbox

CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "

# Names that transformers' own method takes, which therefore never reach a template through the keyword arguments.
METHOD_ARGUMENTS = frozenset(
    "conversation tools documents chat_template add_generation_prompt continue_final_message tokenize padding truncation"
    " max_length return_tensors return_dict return_assistant_tokens_mask tokenizer_kwargs".split()
)


class Refused(Exception):
    """The engine answers this request with an error."""


class TemplateFailed(Refused):
    """It does so because the template fails."""


class Generation(jinja2.ext.Extension):
    """The `generation` tag: a call block whose body is printed as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


class Clock:
    """The time that `strftime_now` tells; set before each rendering."""

    now = datetime.datetime(2026, 1, 1)


def strftime_now(format):
    return Clock.now.strftime(format)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


@functools.lru_cache(maxsize=4096)
def compile_template(source):
    return environment().from_string(source)


@functools.lru_cache(maxsize=4096)
def undeclared(source):
    """The variables that a template reads. The environment that vLLM asks has none of the engine's own functions."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    return frozenset(jinja2.meta.find_undeclared_variables(env.parse(source)))


def apply_chat_template(source, special_tokens, messages, tools, kwargs):
    """Renders the prompt text, or raises `Refused`."""
    try:
        template = compile_template(source)
        accepted = undeclared(source) | METHOD_ARGUMENTS
        kwargs = {name: value for name, value in kwargs.items() if name in accepted}
        tools = kwargs.pop("tools", tools)
        documents = kwargs.pop("documents", None)
        add_generation_prompt = kwargs.pop("add_generation_prompt", False)
        continued = kwargs.pop("continue_final_message", False)
        if kwargs.keys() & (METHOD_ARGUMENTS | {"messages"}):
            raise Refused("an argument of the method is given as a template argument")
        if not messages:
            raise Refused("no messages")
        if continued and add_generation_prompt:
            raise Refused("both continue_final_message and add_generation_prompt")
        final = mark_final_message(source, messages) if continued else None
        text = template.render(
            **{
                **special_tokens,
                **kwargs,
                "messages": messages,
                "tools": tools,
                "documents": documents,
                "add_generation_prompt": add_generation_prompt,
            }
        )
        return cut_final_message(text, final) if continued else text
    except Refused:
        raise
    except Exception as error:  # whatever a template raises, the engine answers with an error
        raise TemplateFailed(f"{type(error).__name__}: {error}") from error


def mark_final_message(source, messages):
    """Puts the tag after the text of the last message and returns that text."""
    last = messages[-1]
    content = last.get("content")
    if content is None:
        raise Refused("the last message has no content")
    if "content" not in source:
        raise Refused("the template names no content")
    if isinstance(content, list):
        for part in reversed(content):
            if "text" in part:
                final = part["text"]
                part["text"] = final + CONTINUE_TAG
                return final
        raise Refused("the last message has no text")
    last["content"] = content + CONTINUE_TAG
    return content


def cut_final_message(text, final):
    """Cuts the text where the final message is to be continued."""
    if final.strip() not in text or CONTINUE_TAG.strip() not in text:
        raise Refused("the final message is not in the text")
    at = text.rindex(CONTINUE_TAG.strip())
    if text[at : at + len(CONTINUE_TAG)] == CONTINUE_TAG:
        return text[:at]
    return text[:at].rstrip()
