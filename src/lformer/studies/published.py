"""What the paper prints, table by table; percent, millions and seconds as it prints them.

Accuracies are means and standard deviations over the seeds 42, 123 and 7. The hardware is a Tesla T4, AG News is the
whole set of 120,000 training texts. Values that the paper does not print are not here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """The paper's figures for one row; None where it prints none."""

    accuracy: float | None = None
    deviation: float | None = None
    encoder_parameters: float | None = None
    """Thousands. 248, 987 and the like are 15 d^2 + 16 d a layer: three projections more than the text describes."""
    ratio: float | None = None
    """Encoder parameters over those of Std."""
    epoch_seconds: float | None = None
    memory_gb: float | None = None
    inference_seconds: float | None = None
    tokens_per_second: float | None = None
    """Thousands, padding counted: an epoch's texts times 128."""
    epoch_seconds_again: float | None = None
    """Where table runtime_full prints another number than table efficiency."""


# group -> model -> figures. Sources: the tables main_imdb, main_agnews, pm_summary, pe_full, bert_scale, efficiency and
# runtime_full.
PUBLISHED: dict[str, dict[str, Published]] = {
    "imdb-128": {
        "Std": Published(80.77, 0.24, 991, 1.0, 26, 0.50, 11.8, 123),
        "Std-1L": Published(77.50, 0.28, 248, 0.250),
        "T4-standard": Published(82.02, 0.03, 254, 0.256, 34, 0.51, 12.7),
        "T4-linear": Published(81.65, 0.06, 254, 0.256, 34, 0.51, 12.6, 94),
        "T4-exponential": Published(81.60, 0.14, 254, 0.256),
        "T4-harmonic": Published(81.53, 0.13, 254, 0.256, 34, 0.51, 12.8),
        "T4-learnable": Published(81.98, 0.20, 270, 0.273, 34, 0.51, 12.8),
        "T2-linear": Published(81.72, 0.17, 500, 0.504, 29, 0.49, 11.9),
    },
    "ag-news-256": {
        "Std": Published(91.40, 0.31, 3949, 1.0, 87, 0.99, 3.0, 177),
        "Std-1L": Published(86.97, 0.15, 987, 0.250),
        "T4-linear": Published(90.76, 0.13, 1000, 0.253, 116, 0.96, 3.3, 132),
        "T4-harmonic": Published(90.41, 0.08, 1000, 0.253, 116, 0.96, 3.2),
    },
    "ag-news-768": {
        "Std": Published(91.47, 0.09, 28352, 1.0, 257, 1.95, 5.0, 60, epoch_seconds_again=260),
        "T4-linear": Published(91.52, 0.21, 7118, 0.25, 241, 1.66, 5.2, 64),
    },
}

# Table param_breakdown_768, millions.
BREAKDOWN_768: dict[str, dict[str, float]] = {
    "Std": {"embedding": 23.0, "encoder": 28.4, "total": 51.4},
    "T4-linear": {"embedding": 23.0, "encoder": 7.1, "total": 30.2},
}
WHOLE_768 = 0.59
"""The total of T4-linear over that of Std, as printed."""

# Tables model_configs, arch_shared, arch_by_task, train_shared and train_by_task, the evaluation batch from table
# efficiency. Not printed: dropout, activation, truncation side, the rest of the tokenizer.
_SHARED = {
    "encoder layers": "4",
    "classifier": "mean pool + linear",
    "tokenizer": "BPE",
    "vocabulary": "30,000",
    "sequence length T": "128",
    "optimizer": "AdamW, weight decay 0.01",
    "learning rate": "0.0003",
    "schedule": "onecycle: 10 % linear warm-up, cosine to 1e-05",
    "gradient clipping": "1",
    "precision": "mixed (torch.cuda.amp)",
    "deterministic": "cudnn.deterministic",
    "seeds": "42, 123, 7",
    "hardware": "NVIDIA Tesla T4",
}
_IMDB = {"training texts": "25,000", "test texts": "25,000"}
_AG_NEWS = {"training texts": "120,000", "test texts": "7,600", "epochs": "5"}
_USUAL = {"attention heads H": "4", "batch": "128", "evaluation batch": "256"}
_WIDE = {"attention heads H": "8", "batch": "64", "evaluation batch": "128"}
SETTINGS: dict[str, dict[str, str]] = {
    "imdb-128": {**_SHARED, **_IMDB, **_USUAL, "width d": "128", "feed-forward width d_ff": "512", "epochs": "20"},
    "ag-news-256": {**_SHARED, **_AG_NEWS, **_USUAL, "width d": "256", "feed-forward width d_ff": "1024"},
    "ag-news-768": {**_SHARED, **_AG_NEWS, **_WIDE, "width d": "768", "feed-forward width d_ff": "3072"},
}
