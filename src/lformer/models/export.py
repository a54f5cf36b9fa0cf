"""ONNX export: a model as a graph that runs without PyTorch, at any batch size and length."""

import copy
import importlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lformer.models.base import LFormerPreTrainedModel
from lformer.nn import TubeTransform

TOLERANCE = 1e-4  # of the largest value; float32 in another order of summation gives about 1e-6
EMBEDDED_BYTES = 2**30  # more weights than this go to a file of their own: an ONNX file ends at 2 GiB


def export_onnx(
    model: LFormerPreTrainedModel, path: str | os.PathLike[str], *, opset: int | None = None, check: bool = True
) -> Path:
    """Write an encoder, classifier, masked or causal language model as an ONNX file; the path is returned.

    The graph takes input_ids and attention_mask, int64 (batch, length), and gives logits or last_hidden_state in
    float32, without dropout and without a cache. Batch and length are free. `check` runs it in onnxruntime at two
    other shapes and raises RuntimeError where it differs from the model; nothing is written then. Weights over 1 GiB
    are put beside it, in a file named path + ".data". Needs `pip install 'lformer[export]'`.
    """
    graph = _Graph(model)  # refuses before anything is to be installed
    _need("onnx", "onnxscript", "onnxruntime")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        draft = Path(folder) / path.name
        with _quiet():
            program = torch.onnx.export(
                graph,
                kwargs=graph.example(2, 8),
                input_names=["input_ids", "attention_mask"],
                output_names=[graph.output],
                dynamic_shapes={name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")},
                opset_version=opset,
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        size = sum(weight.nbytes for weight in graph.parameters())
        program.save(str(draft), external_data=size > EMBEDDED_BYTES)
        if check:
            for shape in ((1, 5), (3, 13)):
                _compare(graph, draft, shape)
        for file in sorted(Path(folder).iterdir(), reverse=True):  # the weights, if apart, before the graph
            file.replace(path.parent / file.name)
    return path


class _Graph(nn.Module):
    """What is exported: tensors in, one tensor out, of a frozen copy in float32 on the CPU."""

    def __init__(self, model: LFormerPreTrainedModel) -> None:
        super().__init__()
        if model.config.is_encoder_decoder and model.can_generate():
            raise ValueError(
                f"export_onnx: {type(model).__name__} is two graphs, an encoder and a decoder; export model.encoder"
            )
        self.model = _with_fixed_transforms(copy.deepcopy(model).cpu().float().eval())
        self.output = "last_hidden_state" if model.base_model is model else "logits"
        self.options = {"use_cache": False} if model.config.is_decoder else {}

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **self.options)[self.output]

    def example(self, batch: int, length: int) -> dict[str, Tensor]:
        """A batch of random tokens, the first text padded; shorter where the model's positions end."""
        config = self.model.config
        generator = torch.Generator().manual_seed(0)
        length = min(length, config.max_position_embeddings)
        input_ids = torch.randint(config.vocab_size, (batch, length), generator=generator)
        attention_mask = torch.ones_like(input_ids)
        attention_mask[0, (length + 1) // 2 :] = 0
        return {"input_ids": input_ids, "attention_mask": attention_mask}


def _with_fixed_transforms(model: Any) -> Any:
    """A "learned-orthogonal" transform is worked out at every call; in a graph for inference it is two matrices."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, TubeTransform) and child.transform == "learned-orthogonal":
                fixed = TubeTransform(child.tube_length, "learned")
                for parameter, value in zip((fixed.matrix, fixed.inverse_matrix), child.matrices(), strict=True):
                    assert value is not None
                    parameter.data.copy_(value)
                setattr(parent, name, fixed)
    return model


@torch.no_grad()
def _compare(graph: _Graph, file: Path, shape: tuple[int, int]) -> None:
    import onnxruntime

    batch = graph.example(*shape)
    expected = graph(**batch)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run([graph.output], {name: value.numpy() for name, value in batch.items()})
    error = float((torch.from_numpy(found) - expected).abs().max() / expected.abs().max().clamp_min(1))
    if not error <= TOLERANCE:
        raise RuntimeError(
            f"export_onnx: at (batch, length) = {tuple(batch['input_ids'].shape)} onnxruntime and PyTorch differ by "
            f"{error:.1e} of the largest value, more than {TOLERANCE:.0e}; the file was not written"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch and onnxscript have to say about their own insides and about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _need(*packages: str) -> None:
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ImportError(f"export_onnx needs the package {package}: pip install 'lformer[export]'") from error
