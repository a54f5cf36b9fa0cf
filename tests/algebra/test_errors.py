"""A ValueError says which operation, what it got and what it needed."""

import numpy as np
import pytest
import torch

from lformer import algebra
from lformer.algebra import get_transform, leigh, linverse, lproduct, lsvd_energy, lsvd_truncated

from .cases import low_rank, randn

OF_ONE_TENSOR = {
    "ltranspose": algebra.ltranspose,
    "linverse": linverse,
    "lpinv": algebra.lpinv,
    "lsvd": algebra.lsvd,
    "lsvd_truncated": lambda a, t="dct": lsvd_truncated(a, 1, t),
    "lsvd_energy": lambda a, t="dct": lsvd_energy(a, 0.5, t),
    "singular_tubes": algebra.singular_tubes,
    "lqr": algebra.lqr,
    "llu": algebra.llu,
    "leigh": leigh,
    "average_rank": algebra.average_rank,
    "tubal_rank": algebra.tubal_rank,
    "multi_rank": algebra.multi_rank,
    "nuclear_norm": algebra.nuclear_norm,
    "spectral_norm": algebra.spectral_norm,
    "prox_nuclear": lambda a, t="dct": algebra.prox_nuclear(a, 0.5, t),
    "is_orthogonal": algebra.is_orthogonal,
    "is_fdiagonal": algebra.is_fdiagonal,
    "is_invertible": algebra.is_invertible,
}
# tubal_rank and average_rank are computed by another public function, and report its name.
SPEAKS_AS = {"tubal_rank": "singular_tubes", "average_rank": "multi_rank"}


@pytest.mark.parametrize("name", OF_ONE_TENSOR)
def test_order_and_transform_of_one_tensor(name):
    function, said = OF_ONE_TENSOR[name], SPEAKS_AS.get(name, name)
    with pytest.raises(ValueError, match=rf"{said}: needs tensors \(\.\.\., m, n, p\).*got shape \(3, 3\)"):
        function(randn(3, 3))
    with pytest.raises(ValueError, match=rf"{said}: .*got shape \(3, 3, 0\)"):
        function(randn(3, 3, 0))
    with pytest.raises(ValueError, match=rf"{said}: get_transform: no transform is called 'dtc'; there are dct, dst"):
        function(randn(3, 3, 4), "dtc")
    with pytest.raises(ValueError, match=rf"{said}: get_transform: .*'dct', p=5.*tubes of length 4"):
        function(randn(3, 3, 4), get_transform("dct", 5))
    with pytest.raises(ValueError, match=rf"{said}: get_transform: the matrix Z is 5 x 5, but the tubes have length 4"):
        function(randn(3, 3, 4), torch.eye(5))
    with pytest.raises(ValueError, match=rf"{said}: get_transform: 'hadamard' exists only for p a power of two.*p=6"):
        function(randn(3, 3, 6), "hadamard")


@pytest.mark.parametrize("name", ["frobenius_norm", "block_diagonal", "block_circulant"])
def test_order_without_a_transform(name):
    with pytest.raises(ValueError, match=rf"{name}: needs a tensor \(\.\.\., m, n, p\), got shape \(3, 3\)"):
        getattr(algebra, name)(randn(3, 3))


@pytest.mark.parametrize("name", ["lproduct", "facewise"])
def test_products(name):
    function = getattr(algebra, name)
    with pytest.raises(ValueError, match=rf"{name}: both tensors.*same tube length.*\(2, 3, 4\) and \(3, 2, 5\)"):
        function(randn(2, 3, 4), randn(3, 2, 5))
    with pytest.raises(ValueError, match=rf"{name}: the columns of A must match.*\(2, 3, 4\) and \(2, 3, 4\)"):
        function(randn(2, 3, 4), randn(2, 3, 4))
    with pytest.raises(ValueError, match=rf"{name}: the leading batch dimensions do not broadcast.*\(2, .*and \(3, "):
        function(randn(2, 2, 3, 4), randn(3, 3, 2, 4))
    with pytest.raises(ValueError, match=rf"{name}: needs tensors .*\(3, 4\) and \(3, 2, 4\)"):
        function(randn(3, 4), randn(3, 2, 4))


def test_the_operation_is_named_when_its_transform_is_wrong():
    with pytest.raises(ValueError, match="lproduct: get_transform: no transform is called 'DCT'"):
        lproduct(randn(2, 2, 3), randn(2, 2, 3), "DCT")
    with pytest.raises(ValueError, match=r"lidentity: get_transform: 'dct' needs a tube length p >= 1, got p=None"):
        algebra.lidentity(3)
    with pytest.raises(ValueError, match=r"lidentity: needs m >= 0, got m=-1"):
        algebra.lidentity(-1, 3)


@pytest.mark.parametrize("name", ["linverse", "leigh", "is_invertible"])
def test_square_slices(name):
    with pytest.raises(ValueError, match=rf"{name}: needs square frontal slices.*got shape \(2, 3, 4\)"):
        getattr(algebra, name)(randn(2, 3, 4))


@pytest.mark.parametrize("p", [3, 5, 6, 7, 12, 1000])
def test_hadamard_names_sizes_that_work(p):
    with pytest.raises(ValueError, match=rf"power of two, got p={p}; use p=(\d+) or p=(\d+)") as caught:
        get_transform("hadamard", p)
    words = str(caught.value).replace(",", "").split("p=")
    lower, upper = int(words[2].split()[0]), int(words[3].split()[0])
    assert lower < p < upper == 2 * lower
    get_transform("hadamard", lower)
    get_transform("hadamard", upper)


@pytest.mark.parametrize("p", [0, -1, None])
def test_tube_length(p):
    with pytest.raises(ValueError, match=rf"get_transform: 'dct' needs a tube length p >= 1, got p={p}"):
        get_transform("dct", p)


def test_transform_of_another_length():
    with pytest.raises(ValueError, match=r"Transform\('dct', p=4\).*tubes of length 3"):
        get_transform(get_transform("dct", 4), 3)
    with pytest.raises(ValueError, match=r"Transform\('dct', p=4\)\.forward: .*p=4, got a tensor of shape \(2, 3\)"):
        get_transform("dct", 4).forward(randn(2, 3))
    with pytest.raises(ValueError, match=r"\.inverse: dimension dim=2 must exist"):
        get_transform("dct", 4).inverse(randn(2, 4), dim=2)


@pytest.mark.parametrize("shape", [(2, 3), (3,), (0, 0), (2, 2, 2)])
def test_matrix_must_be_square(shape):
    with pytest.raises(ValueError, match=r"get_transform: the matrix Z must be square, p x p, got shape \("):
        get_transform(randn(*shape))


@pytest.mark.parametrize(
    ("z", "condition"),
    [
        (torch.ones(2, 2).double(), r"(inf|[\d.]+e\+1[5-9])"),
        (torch.zeros(2, 2), r"(inf|nan)"),
        (torch.diag(torch.tensor([1.0, 1e-9]).double()), r"1e\+09"),
        (torch.diag(torch.tensor([1.0, 1e-7])), r"1e\+07"),  # float32 has fewer digits to lose
        (torch.diag(torch.tensor([1.0, 1e-9], dtype=torch.complex128)), r"1e\+09"),
        (np.array([[1.0, 2.0], [2.0, 4.0]]), r"(inf|[\d.]+e\+1[5-9])"),
    ],
)
def test_matrix_must_be_well_conditioned(z, condition):
    with pytest.raises(ValueError, match=rf"badly conditioned: its condition number is {condition}, at most"):
        get_transform(z)


def test_matrix_that_is_only_somewhat_conditioned_is_taken():
    get_transform(torch.diag(torch.tensor([1.0, 1e-7]).double()))
    get_transform(torch.diag(torch.tensor([1.0, 1e-5])))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_matrix_must_be_finite(value):
    with pytest.raises(ValueError, match="get_transform: the matrix Z has entries that are not finite"):
        get_transform(torch.tensor([[1.0, value], [0.0, 1.0]]))


@pytest.mark.parametrize("name", ["dct", "dft", "identity"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inverse_of_a_singular_tensor(name, dtype):
    singular = low_rank(name, 3, 3, 4, rank=2).to(dtype)
    for a in (singular, torch.zeros_like(singular), torch.stack([torch.ones(3, 3, 4, dtype=dtype), singular])):
        with pytest.raises(ValueError, match=r"linverse: a slice of L\(A\) is singular.*shape \(.*use lpinv"):
            linverse(a, name)


def test_inverse_with_one_slice_that_vanishes_up_to_rounding():
    with pytest.raises(ValueError, match="linverse: a slice"):
        linverse(randn(3, 3, 1).expand(3, 3, 4), "dct")


def test_eigh_of_a_tensor_that_is_not_symmetric():
    with pytest.raises(ValueError, match=r"leigh: the tensor of shape \(3, 3, 4\) is not L-symmetric.*use lsvd"):
        leigh(randn(3, 3, 4))
    symmetric = randn(3, 3, 4) + randn(3, 3, 4).transpose(0, 1)
    with pytest.raises(ValueError, match="not L-symmetric"):
        leigh(symmetric, "dft")  # symmetric under the DCT, not under the DFT
    with pytest.raises(ValueError, match="not L-symmetric"):
        leigh(torch.stack([1e9 * symmetric, randn(3, 3, 4)]))  # the large one does not hide the other


@pytest.mark.parametrize("k", [0, -1, 3])
def test_truncation_rank(k):
    with pytest.raises(ValueError, match=rf"lsvd_truncated: k={k} must be from 1 to 2, .*shape \(4, 2, 3\)"):
        lsvd_truncated(randn(4, 2, 3), k)


@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, float("nan")])
def test_energy_fraction(fraction):
    with pytest.raises(ValueError, match=rf"lsvd_energy: fraction={fraction} must be above 0 and at most 1"):
        lsvd_energy(randn(4, 2, 3), fraction)


@pytest.mark.parametrize("tau", [-0.1, float("nan")])
def test_threshold(tau):
    with pytest.raises(ValueError, match=rf"prox_nuclear: the threshold tau={tau} must not be negative"):
        algebra.prox_nuclear(randn(4, 2, 3), tau)


def test_mode_of_qr():
    with pytest.raises(ValueError, match="lqr: mode='r' must be 'reduced' or 'complete'"):
        algebra.lqr(randn(4, 2, 3), mode="r")


def test_spectral_norm_of_nothing():
    with pytest.raises(ValueError, match=r"spectral_norm: a tensor of shape \(0, 2, 3\) has no singular values"):
        algebra.spectral_norm(randn(0, 2, 3))


def test_unfolding():
    a = randn(2, 3, 4)
    for call, said in (
        (lambda: algebra.unfold(a, 3), "unfold: mode=3 does not exist in a tensor of order 3"),
        (lambda: algebra.fold(randn(2, 11), 0, (2, 3, 4)), r"fold: .*\(2, 3, 4\).*\(2, 12\), got .*\(2, 11\)"),
        (lambda: algebra.fold(randn(2, 12), 5, (2, 3, 4)), "fold: mode=5"),
        (lambda: algebra.mode_product(a, randn(2, 2), 1), r"mode_product: .*must be \(J, 3\), got shape \(2, 2\)"),
        (lambda: algebra.mode_product(a, randn(2, 2), -4), "mode_product: mode=-4"),
        (lambda: algebra.mode_contract(a, randn(2), 1), r"mode_contract: .*must be \(3,\), got shape \(2,\)"),
        (lambda: algebra.tensorize(randn(2, 6), 0), r"tensorize: .*got shape \(2, 6\) and p=0"),
        (lambda: algebra.matricize(randn(3)), r"matricize: needs .*got shape \(3,\)"),
        (lambda: algebra.matricize(a, 13), r"matricize: .*has 12 features, cannot cut it to d=13"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
