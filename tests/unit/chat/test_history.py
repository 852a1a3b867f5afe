from __future__ import annotations

import pytest

from chat_harness import assistant, call, result, system, user
from tenuto.chat.history import arrange
from tenuto.errors import InvalidRequest
from tenuto.protocol.messages import Message


def contents(*messages: Message) -> list[str]:
    return [m.content for m in arrange(messages).messages]


def test_plain_turns_stay_as_they_are():
    messages = (system("系统"), user("你好"), assistant("您好"), user("?"))
    arranged = arrange(messages)
    assert arranged.messages == messages and arranged.sources == (0, 1, 2, 3)


def test_results_are_put_in_call_order_with_other_content_after_them():
    """B18: c2's result arrives first, and a note stands between the two."""
    two = assistant("", call("c1", city="北京"), call("c2", city="Oslo"))
    arranged = arrange((user("q"), two, result("c2", "雨"), user("a note"), result("c1", "晴"), user("and?")))
    assert [m.content for m in arranged.messages] == ["q", "", "晴", "雨", "a note", "and?"]
    assert arranged.sources == (0, 1, 4, 2, 3, 5)
    assert [m.name for m in arranged.messages[2:4]] == ["get_weather", "get_weather"]


def test_call_ids_may_come_again_in_a_later_turn():
    once = (assistant("", call("c1", city="a")), result("c1", "1"))
    assert contents(user("q"), *once, *once) == ["q", "", "1", "", "1"]


@pytest.mark.parametrize(
    ("messages", "where", "why"),
    [
        ((user("q"), result("c9", "?")), "messages[1]", "c9"),
        ((assistant("", call("c1")), user("q")), "messages[0]", "no result at the end"),
        ((user("q"), assistant("", call("c1"), call("c2")), result("c1", "1"), assistant("x")), "messages[1]", "c2"),
        ((assistant("", call("c1")), result("c1", "1"), result("c1", "2")), "messages[2]", "second result"),
        ((assistant("", call("c1"), call("c1")),), "messages[0]", "one id"),
        ((assistant("", call("c1")), system("s")), "messages[0]", "before messages[1]"),
        ((Message(role="user", tool_calls=(call("c1"),)),), "messages[0]", "only an assistant"),
        ((Message(role="user", tool_call_id="c1"),), "messages[0]", "only a tool"),
        ((Message(role="tool", content="x"),), "messages[0]", "None"),
        ((user("q"), user("\ud83d")), "messages[1]", "UTF-8"),
        ((Message(role="boss", content="x"),), "messages[0]", "boss"),
    ],
)
def test_what_is_no_conversation_is_refused_by_index(messages, where, why):
    with pytest.raises(InvalidRequest) as caught:
        arrange(messages)
    assert caught.value.param == where
    assert where in str(caught.value) and why in str(caught.value)
