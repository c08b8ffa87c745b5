"""Which content format a template wants, from its syntax tree: `openai` (a list of parts) or `string`.

Follows vLLM 0.32 (`renderers/hf.py`). A template wants parts if it loops over the content of a message, where messages are what a
loop over `messages`, or over something assigned from it, runs through.
"""

import functools

from jinja2 import nodes

from engine import environment


@functools.lru_cache(maxsize=4096)
def detect(source):
    try:
        tree = environment().parse(source)
    except Exception:
        return "string"
    try:
        return "openai" if any(content_loops(tree)) else "string"
    except NotAName:
        return "string"


class NotAName(Exception):
    """A target that is no plain name, where vLLM asserts one."""


def name_of(target):
    if not isinstance(target, nodes.Name):
        raise NotAName
    return target.name


def inner(node):
    """The expression below filters, tests and slices."""
    while True:
        if isinstance(node, (nodes.Filter, nodes.Test)):
            node = node.node
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            node = node.node
        else:
            return node


def is_name(node, name):
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name


def reads_name(node, name):
    return is_name(inner(node), name)


def reads_content(node, names):
    node = inner(node)
    if isinstance(node, nodes.Getattr):
        return node.attr == "content" and any(is_name(node.node, name) for name in names)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value == "content" and any(is_name(node.node, name) for name in names)
    return False


def lists_of_messages(tree):
    found = ["messages"]
    queue = ["messages"]
    while queue:
        name = queue.pop(0)
        for assignment in tree.find_all(nodes.Assign):
            if reads_name(assignment.node, name):
                target = name_of(assignment.target)
                found.append(target)
                if target != name and found.count(target) < 2:
                    queue.append(target)
    return found


def message_names(tree):
    lists = lists_of_messages(tree)
    for loop in tree.find_all(nodes.For):
        if any(reads_name(loop.iter, name) for name in lists):
            yield name_of(loop.target)


def content_parameters(tree, macro, names):
    """Parameters of a macro that receive the content of a message in some call."""
    parameters = [argument.name for argument in macro.args]
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        for parameter, argument in zip(parameters, call.args):
            if reads_content(argument, names):
                yield parameter
        for argument in call.kwargs:
            if argument.key in parameters and reads_content(argument.value, names):
                yield argument.key


def content_loops(tree):
    names = list(message_names(tree))
    in_macros = {}
    for macro in tree.find_all(nodes.Macro):
        parameters = set(content_parameters(tree, macro, names))
        for loop in macro.find_all(nodes.For):
            if parameters or id(loop) not in in_macros:
                in_macros[id(loop)] = parameters
    for loop in tree.find_all(nodes.For):
        if reads_content(loop.iter, names):
            name_of(loop.target)
            yield True
        elif isinstance(loop.iter, nodes.Name):
            inside = id(loop) in in_macros
            if loop.iter.name in in_macros.get(id(loop), ()):
                name_of(loop.target)
                yield True
            elif not inside and loop.iter.name == "content":
                name_of(loop.target)
                yield True
