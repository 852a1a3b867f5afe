"""What is asked of a model: prompts that want a tool, and lines to copy."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.compare.calls import MAX_PROMPTS, Prompt, call_report, collect_calls, prompts
from tenuto.compare.copies import Copied, copy_report, copy_tasks
from tenuto.errors import ContextLengthError
from tenuto.ids import TokenId
from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.messages import Message
from tenuto.testing import Reply, ScriptedModel, call

REQUEST = ChatRequest(messages=(Message(role="system", content="be brief"),))


def test_prompts_are_many_and_all_different_in_two_languages() -> None:
    found = prompts(MAX_PROMPTS)
    assert len({prompt.question for prompt in found}) == MAX_PROMPTS == len(found)
    chinese = [prompt for prompt in found if re.search("[一-鿿]", prompt.question)]
    assert len(chinese) == MAX_PROMPTS // 2
    assert prompts(4) == found[:4]
    for prompt in found:
        name, arguments = prompt.right[0].split(" ", 1)
        assert name == "weather" and all(value in prompt.question for value in json.loads(arguments).values())


def test_calls_are_compared_as_values_and_in_the_order_of_the_questions() -> None:
    replies = {
        "天气？": Reply(calls=(("weather", {"date": "今天", "city": "北京"}), ("clock", {}))),
        "hello": Reply(text="hi"),
        "rain?": call("weather", city="Oslo"),
    }
    model = ScriptedModel(lambda request: replies[request.messages[-1].content])
    done: list[int] = []
    questions = ["rain?", "hello", "天气？", "hello"]
    found = asyncio.run(collect_calls(model, REQUEST, questions, lambda: done.append(1)))
    assert found[0] == ('weather {"city": "Oslo"}',) and found[1] == found[3] == ()
    assert found[2] == ('weather {"city": "北京", "date": "今天"}', "clock {}")
    assert len(done) == 4 and model.seen.requests[0].messages[0].content == "be brief"


def test_what_cannot_be_asked_fails_once_and_at_once() -> None:
    model = ScriptedModel(lambda request: ContextLengthError(9000, 2048))
    with pytest.raises(ContextLengthError):
        asyncio.run(collect_calls(model, REQUEST, [prompt.question for prompt in prompts(9)], lambda: None))
    assert len(model.seen.requests) == 1


def test_a_report_counts_what_is_the_same_and_shows_what_is_not() -> None:
    oslo, rome = ('weather {"city": "Oslo"}',), ('weather {"city": "Rome"}',)
    asked = [Prompt("a", oslo), Prompt("b", oslo), Prompt("问", oslo), Prompt("d", oslo)]
    report = call_report(asked, [oslo, (), oslo, rome], [oslo, (), rome, ()])
    assert (report.num_prompts, report.num_same, report.num_right_a, report.num_right_b) == (4, 2, 2, 1)
    assert report.agreement == 0.5
    assert [(d.prompt, d.a, d.b) for d in report.different] == [("问", oslo[0], rome[0]), ("d", rome[0], "no call")]


def test_lines_to_copy_are_the_same_each_time_and_stand_in_their_prompt() -> None:
    tokenizer = embedded_tokenizer()
    tasks = copy_tasks(tokenizer, 32)
    assert tasks == copy_tasks(tokenizer, 32) and set(tasks) == {"numbers", "code"}
    for kind in tasks.values():
        assert len({task.line for task in kind}) == 32
        for task in kind:
            prompt = tokenizer.decode(task.prompt_ids)
            assert prompt.endswith(f"Line: {task.line}\nCopy:") and prompt.count("Copy:") == 3
            assert tokenizer.decode(task.line_ids) == f" {task.line}\n"
    assert sum("订单" in task.line for task in tasks["numbers"]) > 3


def test_a_lost_line_is_shown_up_to_its_first_wrong_token() -> None:
    tokenizer = embedded_tokenizer()
    tasks = copy_tasks(tokenizer, 3)["numbers"]
    right = [Copied(task.line_ids) for task in tasks]
    wrong_digit = Copied((*tasks[0].line_ids[:6], TokenId(99), *tasks[0].line_ids[7:]))
    report = copy_report("numbers", tasks, right, [wrong_digit, *right[1:]], tokenizer)
    assert (report.num_lines, report.num_exact_a, report.num_exact_b) == (3, 3, 2)
    assert [lost.text for lost in report.lost] == [tasks[0].line]
    assert report.lost[0].wrote == tokenizer.decode((*tasks[0].line_ids[:6], TokenId(99))).strip()
    assert copy_report("numbers", tasks, [wrong_digit, *right[1:]], [wrong_digit, *right[1:]], tokenizer).lost == ()
