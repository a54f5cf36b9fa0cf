"""The yardstick of the quickstart: logistic regression on character n-grams of the same names.

python benchmarks/quickstart_baseline.py             # every choice: 80 fits of some 15 seconds; writes the result
python benchmarks/quickstart_baseline.py --quick     # the choice that was best: 20 seconds

Features and strength are chosen on the validation split; the test split is looked at once, with the best.
"""

import argparse
import itertools
from typing import Any

from harness import RESULTS, facts, write
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from lformer.data import load_data

# "char_wb" pads every word with blanks, so that its first and last letters are seen as such.
GRID: dict[str, tuple[Any, ...]] = {
    "features": ("tf-idf", "counts"),
    "analyzer": ("char_wb", "char"),
    "longest": (4, 5),
    "lowercase": (False, True),
    "c": (1.0, 3.0, 10.0, 30.0, 100.0),
}
BEST: dict[str, Any] = {"features": "tf-idf", "analyzer": "char_wb", "longest": 5, "lowercase": False, "c": 30.0}
VECTORIZERS = {"tf-idf": TfidfVectorizer, "counts": CountVectorizer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the choice that was best; writes nothing")
    quick = parser.parse_args().quick
    choices = (
        [BEST] if quick else [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    )
    data = load_data("cldr")
    texts = {name: [fields[0] for fields in split.texts] for name, split in data.splits.items()}
    labels = {name: split.labels for name, split in data.splits.items()}
    tried: list[dict[str, Any]] = []
    best: tuple[float, Any, Any] = (-1.0, None, None)
    for choice in choices:
        vectorizer = VECTORIZERS[choice["features"]](
            analyzer=choice["analyzer"], ngram_range=(1, choice["longest"]), lowercase=choice["lowercase"]
        )
        model = LogisticRegression(C=choice["c"], max_iter=2000)
        model.fit(vectorizer.fit_transform(texts["train"]), labels["train"])
        score = float(model.score(vectorizer.transform(texts["validation"]), labels["validation"]))
        tried.append({**choice, "validation_accuracy": score})
        print("  ".join(f"{name} {value}" for name, value in tried[-1].items()), flush=True)
        if score > best[0]:
            best = (score, vectorizer, model)
    score, vectorizer, model = best
    found = model.predict(vectorizer.transform(texts["test"]))
    result = {
        "best": max(tried, key=lambda line: line["validation_accuracy"]),
        "weights": int(model.coef_.size),
        "test_accuracy": float(accuracy_score(labels["test"], found)),
        "test_macro_f1": float(f1_score(labels["test"], found, average="macro")),
    }
    print("\n".join(f"{name}: {value}" for name, value in result.items()))
    if not quick:
        path = RESULTS / "quickstart-baseline.json"
        write(path, {**facts(("scikit-learn", "babel", "numpy")), **result, "tried": tried})


if __name__ == "__main__":
    main()
