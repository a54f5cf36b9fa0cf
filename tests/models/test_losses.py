"""Losses, computed by hand."""

import pytest
import torch
import torch.nn.functional as F

from .cases import CAUSAL, CLASSIFIER, MASKED, SEQ2SEQ, VOCAB, T, assert_close, assert_differs, make_ids, make_model


def test_one_label():
    model = make_model(CLASSIFIER, num_labels=3)
    labels = torch.tensor([2, 0])
    outputs = model(make_ids(), labels=labels)
    assert outputs.logits.shape == (2, 3)
    assert_close(outputs.loss, F.cross_entropy(outputs.logits, labels))
    assert model.config.problem_type == "single_label_classification"


def test_several_labels():
    model = make_model(CLASSIFIER, num_labels=3)
    labels = torch.tensor([[1.0, 0, 1], [0, 0, 1]], dtype=torch.float64)
    outputs = model(make_ids(), labels=labels)
    assert_close(outputs.loss, F.binary_cross_entropy_with_logits(outputs.logits, labels))
    assert model.config.problem_type == "multi_label_classification"


@pytest.mark.parametrize("num_labels", [1, 2])
def test_numbers(num_labels):
    model = make_model(CLASSIFIER, num_labels=num_labels, problem_type="regression")
    labels = torch.tensor([[0.3, 1.0], [-2.0, 0.5]], dtype=torch.float64)[:, :num_labels].squeeze(-1)
    outputs = model(make_ids(), labels=labels)
    assert_close(outputs.loss, F.mse_loss(outputs.logits.squeeze(-1), labels))


def test_one_number_is_a_regression_unless_said_otherwise():
    model = make_model(CLASSIFIER, num_labels=1)
    model(make_ids(), labels=torch.tensor([0.3, 1.0], dtype=torch.float64))
    assert model.config.problem_type == "regression"


def test_the_classifier_is_a_linear_layer_on_the_mean_of_tokens():
    model = make_model(CLASSIFIER)
    mask = torch.ones(2, T, dtype=torch.long)
    mask[1, 4:] = 0
    states = model.model(make_ids(), attention_mask=mask).last_hidden_state
    means = torch.stack([states[0].mean(0), states[1, :4].mean(0)])
    assert_close(model(make_ids(), attention_mask=mask).logits, model.classifier(means))


def test_masked_tokens_alone_count():
    model = make_model(MASKED)
    labels = make_ids(seed=1)
    labels[0, :4] = labels[1, 2:] = -100
    outputs = model(make_ids(), labels=labels)
    places = labels != -100
    assert_close(outputs.loss.double(), F.cross_entropy(outputs.logits[places], labels[places]), 1e-6)
    assert_differs(outputs.loss, model(make_ids(), labels=make_ids(seed=1)).loss)


def test_the_next_token_is_predicted():
    model = make_model(CAUSAL)
    ids = make_ids()
    labels = ids.clone()
    labels[1, 4:] = -100
    outputs = model(ids, labels=labels)
    places = [(0, t) for t in range(5)] + [(1, t) for t in range(3)]  # the second text has four tokens
    terms = [-outputs.logits[b, t].log_softmax(-1)[ids[b, t + 1]] for b, t in places]
    assert_close(outputs.loss.double(), torch.stack(terms).mean(), 1e-6)
    assert outputs.past_key_values is None


def test_translation_shifts_the_labels_into_the_decoder():
    model = make_model(SEQ2SEQ)
    labels = make_ids(length=4, seed=1)
    labels[1, 2:] = -100
    outputs = model(make_ids(), labels=labels)
    start, padding = model.config.decoder_start_token_id, model.config.pad_token_id
    fed = torch.tensor([[start, *labels[0, :3].tolist()], [start, *labels[1, :2].tolist(), padding]])
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), fed)
    logits = model(make_ids(), decoder_input_ids=fed).logits
    assert_close(outputs.logits, logits)
    places = labels != -100
    assert_close(outputs.loss.double(), F.cross_entropy(logits[places], labels[places]), 1e-6)


def test_translation_without_a_start_token_says_what_is_missing():
    model = make_model(SEQ2SEQ, decoder_start_token_id=None)
    with pytest.raises(ValueError, match="needs decoder_start_token_id and pad_token_id, got None and 0"):
        model(make_ids(), labels=make_ids())


@pytest.mark.parametrize("kind", [MASKED, CAUSAL])
def test_a_trainer_may_say_how_many_tokens_to_divide_by(kind):
    model = make_model(kind)
    ids = make_ids()
    count = ids.numel() - (2 if kind is CAUSAL else 0)
    mean = model(ids, labels=ids).loss
    assert_close(model(ids, labels=ids, num_items_in_batch=torch.tensor(2 * count)).loss, mean / 2, 1e-6)


@pytest.mark.parametrize("kind", [MASKED, CAUSAL])
def test_a_tensor_head_has_a_fraction_of_the_weights(kind):
    model = make_model(kind, tie_word_embeddings=False, output_projection="tensor")
    assert model.lm_head.weight.numel() == 4 * (-(-VOCAB // 4)) * 4
    assert model(make_ids()).logits.shape == (2, T, VOCAB)
    assert not hasattr(model.lm_head, "bias") or model.lm_head.bias is None
