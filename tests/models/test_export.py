"""torch.export and ONNX: one graph for every batch size and length, with the results of the model."""

import importlib.util
import sys

import pytest
import torch

from lformer import (
    LFormerForCausalLM,
    LFormerForConditionalGeneration,
    LFormerForMaskedLM,
    LFormerForSequenceClassification,
    LFormerModel,
)
from lformer.models import export
from lformer.models.export import export_onnx

from . import tiny

# A machine with a GPU may lack them. Where everything is to run, tests/repo/test_imports.py fails without them.
needs_onnx = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript")),
    reason="no onnx, onnxruntime or onnxscript: pip install -e '.[export]'",
)
SHAPES = ((1, 4), (5, 30), (2, 3))


@pytest.mark.parametrize(
    ("cls", "variant"),
    [
        *((cls, "dct") for cls in tiny.ALL),
        (LFormerModel, "dft"),
        (LFormerForMaskedLM, "padded"),
        (LFormerForSequenceClassification, "learned-orthogonal"),
        (LFormerForCausalLM, "rope-interleave"),
    ],
)
def test_torch_export_is_dynamic(cls, variant):
    model = tiny.model(cls, num_hidden_layers=1, **tiny.VARIANTS[variant])
    options = {"use_cache": False} if cls in tiny.GENERATIVE else {}
    inputs = tiny.batch(cls)
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    shapes = {**dict.fromkeys(inputs, free), **dict.fromkeys(options)}
    exported = torch.export.export(model, (), {**inputs, **options}, dynamic_shapes=shapes).module()
    for size, length in SHAPES:
        inputs = {**tiny.batch(cls, size, length), **options}
        torch.testing.assert_close(exported(**inputs)[0], model(**inputs)[0])


@needs_onnx
@pytest.mark.parametrize(
    ("cls", "variant", "output"),
    [
        (LFormerForSequenceClassification, "dct", "logits"),
        (LFormerModel, "padded", "last_hidden_state"),
        (LFormerForMaskedLM, "dft", "logits"),
        (LFormerForCausalLM, "rope-interleave", "logits"),
    ],
)
def test_onnx_equals_pytorch_at_any_shape(cls, variant, output, tmp_path, capfd):
    import onnxruntime

    model = tiny.model(cls, num_hidden_layers=1, **tiny.VARIANTS[variant]).train()
    path = export_onnx(model, tmp_path / "deep" / "model.onnx")
    assert path == tmp_path / "deep" / "model.onnx"
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    assert capfd.readouterr() == ("", "")
    assert model.training, "the model itself is left alone"

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert {entry.name: entry.shape for entry in session.get_inputs()} == {
        "input_ids": ["batch", "length"],
        "attention_mask": ["batch", "length"],
    }
    model.eval()
    for size, length in SHAPES:
        inputs = tiny.batch(cls, size, length)
        with torch.no_grad():
            expected = model(**inputs)[0]
        (found,) = session.run([output], {name: value.numpy() for name, value in inputs.items()})
        if found.ndim == 3:  # what stands at padding means nothing
            kept = inputs["attention_mask"].bool()
            found, expected = torch.from_numpy(found)[kept], expected[kept]
        torch.testing.assert_close(torch.as_tensor(found), expected, atol=1e-5, rtol=1e-4)


@needs_onnx
def test_onnx_freezes_learned_orthogonal_transforms(tmp_path):
    model = tiny.model(LFormerForSequenceClassification, num_hidden_layers=1, transform="learned-orthogonal")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("generator"):
                parameter.normal_(std=0.5)  # away from the DCT, where they start
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert export_onnx(model, tmp_path / "model.onnx", opset=18).exists()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@needs_onnx
def test_a_wrong_graph_is_refused_and_not_written(tmp_path, monkeypatch):
    model = tiny.model(LFormerForSequenceClassification, num_hidden_layers=1, tube_length=1)
    path = tmp_path / "model.onnx"
    path.write_text("an older file")
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match=r"\(1, 5\) onnxruntime and PyTorch differ by .* the file was not written"):
        export_onnx(model, path)
    assert path.read_text() == "an older file"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@needs_onnx
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"onnxscript: pip install 'lformer\[export\]'"):
        export_onnx(tiny.model(LFormerModel), tmp_path / "model.onnx")


def test_an_encoder_decoder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"two graphs.*export model\.encoder"):
        export_onnx(tiny.model(LFormerForConditionalGeneration), tmp_path / "model.onnx")
