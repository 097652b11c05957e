import pytest

from langchain_toolrag.errors import EmbeddingError, SourceError, ToolRAGError
from langchain_toolrag.plans import arun, run


async def run_now(plan, answer):
    return run(plan, answer)


async def run_waiting(plan, answer):
    async def wait_and_answer(request):
        return answer(request)

    return await arun(plan, wait_and_answer)


@pytest.fixture(params=[run_now, run_waiting], ids=["run", "arun"])
def carry_out(request):
    return request.param


def adding(count):
    total = 0
    for number in range(count):
        total += yield number
    return total


def raising(error):
    def answer(request):
        raise error

    return answer


async def test_the_answer_is_what_the_plan_returns(carry_out):
    assert await carry_out(adding(4), lambda request: request * 10) == 60


async def test_requests_are_answered_in_order(carry_out):
    asked = []
    await carry_out(adding(3), lambda request: asked.append(request) or 0)
    assert asked == [0, 1, 2]


async def test_a_plan_that_waits_for_nothing_returns_at_once(carry_out):
    assert await carry_out(adding(0), raising(AssertionError)) == 0


async def test_an_error_of_ours_is_raised_inside_the_plan(carry_out):
    def falling_back():
        try:
            return (yield "first")
        except ToolRAGError as error:
            return (yield f"after {error}")

    def answer(request):
        if request == "first":
            raise EmbeddingError("down")
        return request.upper()

    assert await carry_out(falling_back(), answer) == "AFTER DOWN"


async def test_an_error_after_an_error_is_raised_inside_the_plan_too(carry_out):
    def trying_twice():
        for _ in range(2):
            with pytest.raises(SourceError):
                yield
        return "done"

    assert await carry_out(trying_twice(), raising(SourceError("a.json", "broken"))) == "done"


async def test_an_error_that_the_plan_does_not_catch_comes_out(carry_out):
    with pytest.raises(EmbeddingError, match="down"):
        await carry_out(adding(1), raising(EmbeddingError("down")))


async def test_an_error_of_another_kind_is_not_the_plans_to_handle(carry_out):
    def swallowing():
        try:
            yield
        except KeyError:
            return "swallowed"

    with pytest.raises(KeyError, match="a bug"):
        await carry_out(swallowing(), raising(KeyError("a bug")))


async def test_an_error_that_the_plan_itself_raises_comes_out(carry_out):
    def failing():
        yield
        raise ValueError("in the plan")

    with pytest.raises(ValueError, match="in the plan"):
        await carry_out(failing(), lambda request: None)
