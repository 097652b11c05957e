import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.learning.loss import contrastive_loss


def loss_of(similarities, wanted):
    return contrastive_loss(torch.tensor(similarities), torch.tensor(wanted)).item()


class TestLoss:
    def test_one_wanted_tool_stands_against_the_others(self):
        wanted = -math.log(math.exp(2) / (math.exp(2) + math.exp(1) + math.exp(-1)))
        assert loss_of([[2.0, 1.0, -1.0]], [[1.0, 0.0, 0.0]]) == pytest.approx(wanted)

    def test_two_equals_are_a_loss_of_log_two(self):
        assert loss_of([[3.0, 3.0]], [[0.0, 1.0]]) == pytest.approx(math.log(2))

    def test_two_wanted_tools_do_not_push_each_other_away(self):
        similarities = torch.tensor([[1.0, 5.0, 0.0]], requires_grad=True)
        loss = contrastive_loss(similarities, torch.tensor([[1.0, 1.0, 0.0]]))
        assert loss.item() == pytest.approx(
            (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-5))) / 2
        )
        loss.backward()
        first, second, unwanted = similarities.grad[0].tolist()
        assert first < 0
        assert second < 0
        assert unwanted > 0

    def test_without_an_unwanted_tool_there_is_nothing_to_learn_and_no_nan(self):
        similarities = torch.tensor([[1.0, -2.0]], requires_grad=True)
        loss = contrastive_loss(similarities, torch.tensor([[1.0, 1.0]]))
        loss.backward()
        assert loss.item() == 0.0
        assert similarities.grad.tolist() == [[0.0, 0.0]]

    def test_each_request_counts_the_same_however_many_tools_it_needs(self):
        rows = [[4.0, 0.0, 1.0], [0.0, 2.0, 1.0]]
        wanted = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
        each = [loss_of([row], [want]) for row, want in zip(rows, wanted, strict=True)]
        assert loss_of(rows, wanted) == pytest.approx(statistics.fmean(each))

    def test_the_surer_the_smaller(self):
        losses = [loss_of([[sure, 0.0]], [[1.0, 0.0]]) for sure in (-20.0, -1.0, 0.0, 1.0, 20.0)]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] == pytest.approx(0, abs=1e-6)

    @given(
        st.lists(
            st.lists(st.tuples(st.floats(-20, 20), st.booleans()), min_size=4, max_size=4).filter(
                lambda row: any(wanted for _, wanted in row)
            ),
            min_size=1,
            max_size=5,
        )
    )
    @settings(derandomize=True, deadline=None)
    def test_it_is_a_number_from_0_with_a_finite_gradient(self, rows):
        similarities = torch.tensor([[score for score, _ in row] for row in rows])
        similarities.requires_grad_()
        wanted = torch.tensor([[float(want) for _, want in row] for row in rows])
        loss = contrastive_loss(similarities, wanted)
        loss.backward()
        assert 0 <= loss.item() < math.inf
        assert torch.isfinite(similarities.grad).all()


class TestWhatIsUnknown:
    @given(
        st.lists(st.floats(-20, 20), min_size=4, max_size=4),
        st.sets(st.integers(1, 3), min_size=1, max_size=3),
    )
    @settings(derandomize=True, deadline=None)
    def test_no_gradient_reaches_it_and_its_score_makes_no_difference(self, scores, places):
        unknown = torch.tensor([[place in places for place in range(4)]])
        wanted = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        similarities = torch.tensor([scores], requires_grad=True)
        loss = contrastive_loss(similarities, wanted, unknown)
        loss.backward()
        assert not similarities.grad[unknown].any()
        assert torch.isfinite(similarities.grad).all()
        other = torch.where(unknown, torch.tensor(7.0), similarities.detach())
        assert contrastive_loss(other, wanted, unknown).item() == pytest.approx(loss.item())

    def test_a_weight_is_what_a_request_counts_even_if_it_is_alone(self):
        similarities, wanted = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.3, 0.0]])
        whole = contrastive_loss(similarities, wanted).item()
        weak = contrastive_loss(similarities, wanted, None, torch.tensor([0.3])).item()
        assert weak == pytest.approx(0.3 * whole)
