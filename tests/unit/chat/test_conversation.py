from __future__ import annotations

from chat_harness import CLOCK, WEATHER, assistant, call, result, user
from tenuto.chat.conversation import Chain, Conversation, Splice, digest_of, explain_break, splice, value_of
from tenuto.text.marked import MarkedText


def talk(*messages, tools=(), num_examples=0) -> Conversation:
    sources = (*(None for _ in range(num_examples)), *range(len(messages) - num_examples))
    return Conversation(messages, sources, tools)


def test_splice_keeps_the_common_prefix():
    assert splice([], [1, 2]) == Splice(0, (1, 2))
    assert splice([1, 2], [1, 2, 3]) == Splice(2, (3,))
    assert splice([1, 2, 9, 9], [1, 2, 3]) == Splice(2, (3,))
    assert splice([1, 2, 3, 4], [9]) == Splice(0, (9,))


def test_splice_always_leaves_something_to_compute():
    assert splice([1, 2, 3], [1, 2, 3]) == Splice(2, (3,))
    assert splice([1, 2, 3, 4], [1, 2]) == Splice(1, (2,))


def test_values_are_equal_however_json_was_spelled():
    assert value_of(assistant("", call("c1", a=1.0, b=[2.0]))) == value_of(assistant("", call("c1", b=[2], a=1)))
    assert value_of(assistant("", call("c1", a=True))) != value_of(assistant("", call("c1", a=1)))
    assert value_of(assistant("", call("c1", a="1"))) != value_of(assistant("", call("c1", a=1)))
    assert value_of(assistant("", call("c1"))) != value_of(assistant("", call("c2")))
    assert value_of(assistant("北京")) != value_of(user("北京"))


def test_a_chain_tells_conversations_apart():
    def last(tools, *messages):
        chain = Chain.of(tools)
        return [chain.add(message) for message in messages][-1]

    assert last([], user("a"), user("b")) == last([], user("a"), user("b"))
    assert last([], user("a"), user("b")) != last([], user("ab"), user(""))
    assert last([], user("a")) != last([WEATHER], user("a"))


def test_a_break_is_explained():
    old = talk(user("一"), assistant("二"), user("三"), assistant("四"))
    assert explain_break(old, talk(user("一"), assistant("2"), user("三")), None) == "history differs at message 1"
    assert explain_break(old, talk(user("一")), None) == "history differs at message 1"
    assert explain_break(old, talk(*old.messages, tools=(CLOCK,)), None) == "tools differ"
    assert explain_break(old, talk(*old.messages, user("五")), 3) == "template rewrites history at message 3"
    assert explain_break(old, talk(*old.messages, user("五")), None) == "template rewrites history"


def test_a_break_in_the_examples_is_explained():
    old = talk(user("eg"), assistant("ie"), user("q"), num_examples=2)
    new = talk(user("eg"), assistant("other"), user("q"), num_examples=2)
    assert explain_break(old, new, None) == "examples differ"
    assert explain_break(old, talk(user("q")), None) == "examples differ"


def test_a_reply_stands_after_the_last_message_of_the_request():
    grown = talk(user("eg"), user("q"), num_examples=1).with_reply(assistant("a"))
    assert grown.sources == (None, 0, 1)
    swapped = Conversation((result("b", ""), result("a", "")), (2, 1), ()).with_reply(assistant("a"))
    assert swapped.sources == (2, 1, 3)


def test_a_digest_does_not_depend_on_the_mark():
    one, other = MarkedText("a<\ufdd0|im_end|>b", "\ufdd0"), MarkedText("a<\ufdd1|im_end|>b", "\ufdd1")
    assert digest_of(one, 14) == digest_of(other, 14)
    assert digest_of(one, 14) != digest_of(MarkedText("a<|im_end|>b", "\ufdd0"), 13)
