"""The models that `iha verify --train` trains have the parameters of the theorems."""

from iha.theory.learned_models import CountModel, FilterModel
from iha.theory.polynomial_filters import ceil_sqrt


def test_models_have_the_parameters_of_the_theorems_and_a_projection() -> None:
    N, d, k = 12, 2, 9
    H = ceil_sqrt(k)
    iha, mha = FilterModel("IHA", H, N, d, k, 0), FilterModel("MHA", k, N, d, k, 0)
    count = [sum(p.numel() for p in m.parameters()) for m in (iha, mha)]
    # R is per head here (Algorithm 1): 3H³ + H² instead of 4H³.
    assert count[0] == 2 * N * (N + d) * H + d * (N + d) * H**2 + 3 * H**3 + H**2 + (H * H * d) * (k * d)
    assert count[1] == 2 * N * (N + d) * k + d * (N + d) * k + (k * d) * (k * d)
    widths = [sum(p.numel() for p in CountModel(kind, 2, 6, 8, 0).parameters()) for kind in ("IHA", "MHA")]
    assert widths[0] - widths[1] == 3 * 2 * 2 * 2 + 2 * 2
