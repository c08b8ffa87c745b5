"""From the body of a chat request to what the engine hands to the template: a model of its request validation, of
`renderers/chat_utils.py` and of `renderers/hf.py` (vLLM 0.32), written for the shapes that clients send.

A shape that the engine refuses raises `Refused`. Media are named by modality; their data does not matter here.
"""

import json

from engine import Refused, apply_chat_template
from content_format import detect

TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
MEDIA_PARTS = {
    "image_url": "image",
    "input_image": "image",
    "image_embeds": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio_embeds": "audio",
    "video_url": "video",
    "video_embeds": "video",
}
# Keys of content parts that some type declares; others travel to the template with the part.
PART_KEYS = frozenset(
    "audio_embeds audio_url closed data file image_embeds image_pil image_url input_audio name prompt_cache_breakpoint"
    " refusal text thinking type uuid video_embeds video_url".split()
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BILLING_HEADER = "x-anthropic-billing-header"
# Stands for media in string content; which words a model has there does not matter.
MEDIA_WORD = "<media>"


def expect(condition, what):
    if not condition:
        raise Refused(what)


def render(source, special_tokens, body, default_kwargs=None):
    """The prompt text of a chat request."""
    messages, tools, kwargs = prepare(source, body, default_kwargs or {})
    return apply_chat_template(source, special_tokens, messages, tools, kwargs)


def prepare(source, body, default_kwargs):
    expect(isinstance(body, dict), "body")
    expect(isinstance(body.get("messages"), list), "messages")
    continued = flag(body, "continue_final_message", False)
    add_generation_prompt = flag(body, "add_generation_prompt", True)
    expect(not (body.get("continue_final_message") and body.get("add_generation_prompt")), "flags")
    format = detect(source)
    messages = [message(item, format) for item in body["messages"]]
    if any(item["role"] == "developer" for item in messages) and not (
        '"developer"' in source or "'developer'" in source
    ):
        messages = merge_systems(messages)
    kwargs = dict(default_kwargs)
    tools = read_tools(body.get("tools"))
    if tools is not None:
        kwargs["tools"] = tools
    own = body.get("chat_template_kwargs")
    expect(own is None or isinstance(own, dict), "chat_template_kwargs")
    own = own or {}
    effort = body.get("reasoning_effort")
    expect(effort is None or effort in EFFORTS, "reasoning_effort")
    extra = {
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": continued,
        "documents": documents(body.get("documents")),
        "reasoning_effort": effort,
    }
    if effort is not None and "enable_thinking" not in own:
        extra["enable_thinking"] = effort != "none"
    expect(not own.keys() & {"chat_template", "tokenize"}, "chat_template_kwargs")
    kwargs = merge(kwargs, merge(own, extra))
    return messages, None, kwargs


def merge(defaults, overrides):
    return defaults | {k: v for k, v in overrides.items() if not (v is None or v == "auto")}


def flag(body, name, default):
    value = body.get(name, default)
    expect(isinstance(value, bool), name)
    return value


def documents(given):
    expect(given is None or isinstance(given, list), "documents")
    for document in given or []:
        expect(isinstance(document, dict), "documents")
        expect(all(isinstance(value, str) for value in document.values()), "documents")
    return given


def read_tools(tools):
    if tools is None:
        return None
    expect(isinstance(tools, list) and tools, "tools")
    return [read_tool(tool) for tool in tools]


def read_tool(tool):
    expect(isinstance(tool, dict) and tool.get("type", "function") == "function", "tools")
    function = tool.get("function")
    expect(isinstance(function, dict) and isinstance(function.get("name"), str), "tools")
    description, parameters = function.get("description"), function.get("parameters")
    strict, defer = function.get("strict"), tool.get("defer_loading")
    expect(description is None or isinstance(description, str), "tools")
    expect(parameters is None or isinstance(parameters, dict), "tools")
    written = {"name": function["name"], "description": description, "parameters": parameters}
    if strict is not None:
        written["strict"] = strict
    inner_defer = function.get("defer_loading")
    if inner_defer is None:
        inner_defer = defer
    if inner_defer is not None:
        written["defer_loading"] = inner_defer
    result = {"type": "function", "function": written}
    if defer is not None:
        result["defer_loading"] = defer
    return result


def message(given, format):
    expect(isinstance(given, dict) and isinstance(given.get("role"), str), "message")
    role = given["role"]
    reasoning = given.get("reasoning")
    if reasoning is None:
        reasoning = given.get("reasoning_content")
    if "name" in given:
        expect(isinstance(given["name"], str), "name")
    result = {"role": role, "content": content(given, role, format)}
    if role == "assistant":
        calls = given.get("tool_calls")
        if calls is not None:
            calls = [tool_call(call) for call in calls]
            if calls:
                result["tool_calls"] = calls
        if reasoning is not None:
            result["reasoning"] = reasoning
            result["reasoning_content"] = reasoning
    elif role == "tool":
        if "tool_call_id" in given:
            result["tool_call_id"] = given["tool_call_id"]
        parts = result["content"]
        if isinstance(parts, list) and all(part.get("type") == "text" for part in parts):
            result["content"] = "\n".join(part.get("text", "") for part in parts)
    for key in ("name", "task"):
        if isinstance(given.get(key), str):
            result[key] = given[key]
    if role == "developer":
        tools = given.get("tools")
        result["tools"] = developer_tools(tools) if tools else tools
    return result


def content(given, role, format):
    value = given.get("content")
    if value is None:
        expect("content" not in given or role in ("assistant", "function"), "content")
        parts = []
    elif isinstance(value, str):
        parts = [{"type": "text", "text": value}]
    else:
        expect(isinstance(value, list), "content")
        parts = value
    if role == "system":
        parts = without_billing_header(parts)
    prepared = [part(item) for item in parts]
    if format == "openai":
        return prepared
    texts = [item["text"] if item["type"] == "text" else item.get("name") for item in prepared]
    texts = "\n".join(text for text in texts if text)
    media = sum(item["type"] in MEDIA_PARTS.values() for item in prepared)
    words = [MEDIA_WORD] * media
    return "\n".join(words + [texts]) if texts else "\n".join(words)


def part(given):
    if isinstance(given, str):
        return {"type": "text", "text": given}
    expect(isinstance(given, dict), "part")
    kind = given.get("type")
    extra = {key: value for key, value in given.items() if key not in PART_KEYS}
    if kind in TEXT_PARTS:
        text = given.get(TEXT_PARTS[kind])
        expect(isinstance(text, str), "part")
        return {"type": "text", "text": text, **extra}
    if kind == "tool_reference":
        expect(isinstance(given.get("name"), str), "part")
        return {"type": "tool_reference", "name": given["name"]}
    expect(kind in MEDIA_PARTS, "part")
    return {"type": MEDIA_PARTS[kind], **extra}


def without_billing_header(parts):
    kept = []
    for item in parts:
        text = item if isinstance(item, str) else item.get("text") if item.get("type") == "text" else None
        if not (isinstance(text, str) and text.startswith(BILLING_HEADER)):
            kept.append(item)
            continue
        rest = text.partition("\n")[2]
        if rest:
            kept.append(rest if isinstance(item, str) else {**item, "text": rest})
    return kept


def in_order(given, first):
    """Declared keys come first, in the order of their declaration, then the others as they came."""
    known = {key: given[key] for key in first if key in given}
    return known | {key: value for key, value in given.items() if key not in known}


def developer_tools(tools):
    """Written in the order of the type that declares them; as they came where they do not fit it."""
    functions = [tool["function"] for tool in tools]
    if any(function.get(key, "") is None for function in functions for key in ("description", "parameters")):
        return tools
    return [
        in_order(
            {**tool, "function": in_order(tool["function"], ("name", "description", "parameters", "strict"))},
            ("function", "type"),
        )
        for tool in tools
    ]


def tool_call(given):
    expect(isinstance(given, dict) and given.get("type") == "function", "tool_calls")
    expect(isinstance(given.get("id"), str), "tool_calls")
    function = given.get("function")
    expect(isinstance(function, dict) and isinstance(function.get("name"), str), "tool_calls")
    expect(isinstance(function.get("arguments"), str), "tool_calls")
    function = in_order(function, ("arguments", "name"))
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except json.JSONDecodeError:
        arguments = {}
    function["arguments"] = arguments if isinstance(arguments, dict) else {}
    return in_order({**given, "function": function}, ("id", "function", "type"))


def merge_systems(messages):
    messages = [as_system(item) if item["role"] == "developer" else item for item in messages]
    systems = [item for item in messages if item["role"] == "system"]
    if messages[0]["role"] == "system" and len(systems) == 1:
        return messages
    texts = [text_of(item["content"]) for item in systems]
    merged = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [merged] + [item for item in messages if item["role"] != "system"]


def as_system(given):
    return {**{key: value for key, value in given.items() if key != "tools"}, "role": "system"}


def text_of(value):
    if isinstance(value, list):
        return "\n".join(item["text"] for item in value if "text" in item)
    return value
