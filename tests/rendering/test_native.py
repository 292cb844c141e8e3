"""The kernel of silhouettes is its reference, up to the error that it may make."""

import pytest
import torch

import softly
from softly import native
from softly.rendering import Camera, Mesh, Renderer, icosphere
from softly.rendering.clipping import polygons
from softly.rendering.silhouette import Choice, pixel_centres, reference, silhouette

from . import scenes

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there"),
]
FACES = icosphere(162).faces
SPHERE = scenes.view().project(icosphere(162).vertices)[..., :2]
GET, TNORM = softly.distributions.get, softly.tnorms.get


def choice(distribution, tconorm="probabilistic", *, squared=False, cutoff=None, p=None):
    found = None if tconorm == "sum" else TNORM(tconorm) if p is None else TNORM(tconorm, p=p)
    return Choice(GET(distribution), squared, found, cutoff)


def run(points, chosen, steepness, size=(19, 22), faces=FACES):
    """Image, and the gradients of a weighted sum of it: in points, since faces that share one may share them anyhow."""
    points = points.clone().requires_grad_()
    dial = torch.tensor(steepness, dtype=torch.float64, requires_grad=True)
    image = silhouette(points[:, faces], dial, None, *size, chosen)
    grads = torch.autograd.grad((image * weights_of(image)).sum(), (points, dial))
    return image.detach(), *grads


def weights_of(image):
    weights = torch.randn(image.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return weights.to(image.dtype)


def without_kernel(monkeypatch, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(native.library, "module", None)
        return run(*arguments, **options)


def assert_same(found, expected, tolerance):
    for a, b in zip(found, expected, strict=True):
        scale = max(b.abs().max().item(), 1e-3)
        torch.testing.assert_close(a, b, atol=tolerance * scale, rtol=0)


CASES = [
    *((name, "probabilistic", None) for name in scenes.DISTRIBUTIONS),
    *(("gaussian", name, p) for name, p in scenes.TCONORMS if p != 0.5),
    *(("cauchy", name, p) for name, p in scenes.TCONORMS),
    ("logistic", "sum", None),
]


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("distribution", "tconorm", "p"), CASES)
def test_double_precision_is_exact(distribution, tconorm, p, squared, monkeypatch):
    chosen, steepness = choice(distribution, tconorm, p=p, squared=squared), 400.0 if squared else 30.0
    points = SPHERE.double()
    assert_same(run(points, chosen, steepness), without_kernel(monkeypatch, points, chosen, steepness), 1e-11)


@pytest.mark.parametrize("name", ["gumbel_max", "exponential", "levy", "gamma"])
def test_reversed_and_shifted(name, monkeypatch):
    for distribution in (GET(name).reversed(), GET(name).reversed().shifted(1.0), GET(name).shifted(-0.5)):
        chosen, points = choice(distribution), SPHERE.double()
        assert_same(run(points, chosen, 30.0), without_kernel(monkeypatch, points, chosen, 30.0), 1e-11)
    two = choice(GET(name, shape=2.0).reversed() if name == "gamma" else GET(name))
    assert_same(run(SPHERE.double(), two, 30.0), without_kernel(monkeypatch, SPHERE.double(), two, 30.0), 1e-11)


@pytest.mark.parametrize("slope", [10.0, 100.0, 300.0, 1000.0, 1e4])
@pytest.mark.parametrize("distribution", scenes.DISTRIBUTIONS)
def test_single_precision_is_within_its_error(distribution, slope):
    points, faces = scenes.view().project(icosphere(642).vertices)[..., :2], icosphere(642).faces
    plain, steep = ("probabilistic", "einstein", "yager", "minimum", "sum"), ("yager", "aczel_alsina", "dombi")
    for squared in (False, True):
        for tconorm, p in (*((name, None) for name in plain), *((name, 0.5) for name in steep)):
            chosen = choice(distribution, tconorm, p=p, squared=squared)
            arguments = (chosen, slope**2 if squared else slope, (48, 48), faces)
            found, exact = run(points, *arguments), run(points.double(), *arguments)
            highest = exact[0].abs().max().item()  # which is above 1 for sums
            rounding = 1e-7 * slope if slope <= 300 else 0.0  # of distances, in single precision
            limit = (1e-5 + rounding) * highest if p is None else 1e-6
            torch.testing.assert_close(found[0].double(), exact[0], atol=limit, rtol=0)
            assert_same([found[1].double()], [exact[1]], 1e-4)
            assert_same([found[2]], [exact[2]], 2e-3)  # of a sum whose terms all but cancel


@pytest.mark.parametrize("aspect", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize(("distribution", "steepness"), [("cauchy", 3.0), ("laplace", 3.0), ("reciprocal", 40.0)])
def test_short_edges_and_slivers_have_the_pixels_that_they_face_from_afar(distribution, steepness, aspect):
    # In the order of magnitude of the faces of fine meshes, and of faces that are seen from their side.
    small = scenes.triangles(40, seed=7, size=0.0)
    turn = torch.linalg.qr(torch.randn(40, 2, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64))[0]
    corners = scenes.triangles(40, seed=8, size=0.01) - scenes.triangles(40, seed=8, size=0.0)
    points = (small + corners * torch.tensor([1.0, aspect]) @ turn).flatten(0, 1).unsqueeze(0)
    faces = torch.arange(120).view(-1, 3)
    for tconorm in ("probabilistic", "einstein", "sum"):
        arguments = (choice(distribution, tconorm), steepness, (48, 48), faces)
        found = silhouette_in_single(points, *arguments)
        assert_same([found], [run(points, *arguments)[1]], 1e-4)


def test_repeated_corners_in_the_column_of_a_pixel(monkeypatch):
    top, rest = [0.125, 0.8], [[-0.9, 0.5], [-0.8, -0.9], [0.9, -0.9], [0.8, 0.6]]
    ways = torch.tensor([[top, top, *rest], [*rest, top, top], [top, *rest[::-1], top]], dtype=torch.float64)
    points, dial = torch.cat([ways, ways * torch.tensor([1.0, -1.0])]), torch.tensor(3.0, dtype=torch.float64)

    def gradient(x):
        x = x.clone().requires_grad_()
        image = silhouette(x, dial, None, 8, 8, choice("cauchy"))
        (grad,) = torch.autograd.grad((image * weights_of(image)).sum(), x)
        return image.detach(), *(grad[..., (x == end).all(-1)[0, 0], :].sum(-2) for end in x[0, 0].unique(dim=0))

    for polygon in points[:, None, None]:
        found = gradient(polygon)
        with monkeypatch.context() as patch:
            patch.setattr(native.library, "module", None)
            assert_same(found, gradient(polygon), 1e-11)


def silhouette_in_single(points, chosen, steepness, size, faces):
    """The gradient in points that are not rounded of an image that is."""
    points, dial = points.clone().requires_grad_(), torch.tensor(steepness, dtype=torch.float64)
    image = silhouette(points[:, faces], dial, None, *size, chosen, torch.float32)
    return torch.autograd.grad((image * weights_of(image)).sum(), points)[0]


@pytest.mark.parametrize("steepness", [30.0, 300.0, 1e3, 1e4, 1e5])
@pytest.mark.parametrize("distribution", ["logistic", "gaussian", "uniform", "cauchy", "gamma-reversed"])
def test_meshes_in_single_precision_have_the_gradients_of_double(distribution, steepness):
    camera, mesh = scenes.view(), icosphere(162)
    name, *turned = distribution.split("-")
    for tconorm in ("probabilistic", "yager", "average", TNORM("dombi", p=0.5)):
        chosen = GET(name).reversed() if turned else GET(name)
        renderer = Renderer((24, 31), distribution=chosen, steepness=steepness, tconorm=tconorm)
        found = []
        for points in (mesh.vertices, mesh.vertices.double()):
            points = points.detach().requires_grad_()
            image = renderer.silhouette(mesh.at(points), camera)
            assert image.dtype == points.dtype
            (grad,) = torch.autograd.grad((image * weights_of(image)).sum(), points)
            found.append((image.detach().double(), grad.double()))
        torch.testing.assert_close(found[0][0], found[1][0], atol=1e-5 + 1e-7 * min(steepness, 300.0), rtol=0)
        assert_same(found[0][1:], found[1][1:], 5e-5)


def test_cutoff(monkeypatch):
    chosen = choice("cauchy", cutoff=2.0)
    assert_same(run(SPHERE.double(), chosen, 50.0), without_kernel(monkeypatch, SPHERE.double(), chosen, 50.0), 1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("near", [0.1, 2.4])
def test_cut_polygons_and_hidden_ones(near, dtype, monkeypatch):
    mesh, camera = icosphere(162), Camera.look_at(distance=3.0, elevation=17.0, azimuth=23.0, near=near, far=3.1)
    renderer = Renderer((19, 22), distribution="logistic", steepness=20.0)
    results = []
    for module in (native.library.module, None):
        vertices = mesh.vertices.to(dtype).requires_grad_()
        moved = Mesh(vertices, mesh.faces)
        corners, seen = polygons(moved, camera)
        assert corners.shape[-2] == 6
        assert not seen.all()
        with monkeypatch.context() as patch:
            patch.setattr(native.library, "module", module)
            image = renderer.silhouette(moved, camera)
            (grad,) = torch.autograd.grad((image * weights_of(image)).sum(), vertices)
        results.append((image.detach(), grad))
    assert_same(*results, 1e-4 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("size", [(1, 1), (3, 70), (8, 8), (33, 31), (65, 2)])
def test_every_size(size, monkeypatch):
    chosen = choice("logistic")
    found = run(SPHERE.double(), chosen, 40.0, size)
    assert_same(found, without_kernel(monkeypatch, SPHERE.double(), chosen, 40.0, size), 1e-11)


def test_many_faces_of_which_none_can_be_dropped(monkeypatch):
    points, faces = scenes.triangles(700, size=0.05).view(1, -1, 2), torch.arange(2100).view(-1, 3)
    for name in ("cauchy", "reciprocal"):
        chosen = choice(name, "einstein")
        found = run(points, chosen, 1e4, faces=faces)
        assert_same(found, without_kernel(monkeypatch, points, chosen, 1e4, faces=faces), 1e-10)


def test_threads_change_nothing_from_call_to_call():
    corners, chosen = SPHERE.expand(3, -1, -1), choice("logistic")
    alone = run(corners, chosen, 30.0, (70, 90))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        first, second = run(corners, chosen, 30.0, (70, 90)), run(corners, chosen, 30.0, (70, 90))
    finally:
        torch.set_num_threads(before)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(first[0], alone[0])
    assert_same(first, alone, 1e-5)


def test_second_derivatives_are_those_of_the_reference():
    corners = scenes.triangles(4).requires_grad_()
    dial = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)
    chosen = choice("logistic", "einstein")
    render = lambda c, s: silhouette(c, s, None, 3, 4, chosen)  # noqa: E731
    assert torch.autograd.gradcheck(render, (corners, dial))
    assert torch.autograd.gradgradcheck(render, (corners, dial))


@pytest.mark.parametrize(
    ("tconorm", "p", "steepness"),
    [("yager", 0.5, 40.0), ("aczel_alsina", 0.5, 40.0), ("dombi", 0.5, 40.0), ("hamacher", 1.0, 600.0)],
)
def test_second_derivatives_in_single_precision(tconorm, p, steepness):
    renderer = Renderer((5, 9), distribution="gaussian", steepness=steepness, tconorm=TNORM(tconorm, p=p))
    mesh, camera, found = icosphere(42), Camera.look_at(distance=3.0), []
    for points in (mesh.vertices, mesh.vertices.double()):
        area = lambda x: renderer.silhouette(mesh.at(x), camera).square().sum()  # noqa: E731
        found.append(torch.func.jvp(torch.func.grad(area), (points,), (torch.full_like(points, 0.1),))[1])
    assert found[0].dtype == torch.float32
    assert_same([found[0].double()], [found[1]], 1e-6)


def test_distributions_that_the_kernel_does_not_know():
    camera = scenes.view()
    for distribution in (GET("gamma", shape=0.7), softly.distributions.art("logistic"), GET("logistic").squared()):
        image = Renderer(6, distribution=distribution, steepness=9.0).silhouette(icosphere(12), camera)
        assert image.isfinite().all()


def test_the_operator_refuses_what_would_break_it():
    op, dial = torch.ops.softly.silhouette, torch.tensor(1.0)
    rest = (6, False, 0.0, False, 1, 1.0, -1.0, 1e-16)
    with pytest.raises(ValueError, match=r"\(..., F, 3 or 6, 2\), got \(1, 4, 2\)"):
        op(torch.zeros(1, 4, 2), dial, None, 4, 4, *rest)
    with pytest.raises(ValueError, match="single number"):
        op(torch.zeros(1, 3, 2), torch.ones(2), None, 4, 4, *rest)
    with pytest.raises(ValueError, match="boolean of shape"):
        op(torch.zeros(1, 3, 2), dial, torch.ones(2).bool(), 4, 4, *rest)
    with pytest.raises(ValueError, match="must be positive"):
        op(torch.zeros(1, 3, 2), dial, None, 0, 4, *rest)
    with pytest.raises(ValueError, match="distributions 0 to 15, got 16"):
        op(torch.zeros(1, 3, 2), dial, None, 4, 4, 16, *rest[1:])
    with pytest.raises(ValueError, match="T-conorms 0 to 7, got 8"):
        op(torch.zeros(1, 3, 2), dial, None, 4, 4, *rest[:4], 8, *rest[5:])


def test_nan_is_not_hidden():
    corners = SPHERE.clone()
    corners[0, 0, 0] = torch.nan
    assert run(corners, choice("logistic"), 30.0)[0].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("tconorm", "p", "steepness"),
    [
        *(("frank", 0.5, steepness) for steepness in (300.0, 1000.0)),
        *((name, p, 30.0) for name in ("yager", "aczel_alsina", "dombi") for p in (5.0, 10.0, 50.0)),
        *(("schweizer_sklar", p, steepness) for p in (-4.0, -5.0) for steepness in (30.0, 1000.0)),
        *(("dombi", p, 1e4) for p in (0.5, 4.0)),
    ],
)
def test_steep_families_where_probabilities_all_but_vanish(tconorm, p, steepness, dtype):
    chosen, size = choice("gaussian", tconorm, p=p), (32, 32)
    found = run(SPHERE.to(dtype), chosen, steepness, size)
    corners = SPHERE.double().requires_grad_()
    exact = reference(corners[:, FACES], torch.tensor(steepness), None, *size, chosen)
    (grad,) = torch.autograd.grad((exact * weights_of(exact)).sum(), corners)
    single = dtype == torch.float32
    torch.testing.assert_close(found[0].double(), exact.detach(), atol=1.2e-5 if single else 1e-12, rtol=0)
    assert_same([found[1].double()], [grad], 1e-4 if single else 1e-10)


def test_many_small_errors_of_one_sign_do_not_add_up():
    points, faces = scenes.view().project(icosphere(642).vertices)[..., :2], icosphere(642).faces
    for p in (0.5, 2.0, 4.0):
        chosen = choice("cauchy", "frank", p=p, squared=True)
        found, exact = (run(x, chosen, 1e6, (32, 32), faces)[0].double() for x in (points, points.double()))
        torch.testing.assert_close(found, exact, atol=2e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("crossing", [False, True])
def test_a_face_that_is_a_point_has_no_inside(dtype, crossing):
    place = torch.tensor([0.3, 0.1, 0.0], dtype=dtype)
    # Behind the near plane's crossing faces are polygons of six corners: far away one is cut, and seen by no pixel.
    other = torch.tensor([[90.0, 0.0, 0.0], [91.0, 0.0, 0.0], [90.0, 1.0, 5.0]], dtype=dtype)
    mesh = Mesh(torch.cat([place.expand(3, 3), other]), torch.arange(6).view(2, 3)[: 1 + crossing])
    camera = Camera.look_at(distance=2.0, orthographic=1.0)
    points = pixel_centres(9, 13, place.double())
    away = (points - place[:2].double()).norm(dim=-1).view(9, 13)
    for name in ("logistic", "cauchy"):
        renderer = Renderer((9, 13), distribution=name, steepness=10.0)
        far = 2 * GET(name).cdf(torch.tensor(-880.0)).item()
        torch.testing.assert_close(
            renderer.silhouette(mesh, camera)[0].double(), GET(name).cdf(-10.0 * away), atol=1e-5 + far, rtol=0
        )
        shown = renderer(mesh, camera)[0, 3].double()
        torch.testing.assert_close(shown, GET(name).cdf(-10.0 * away), atol=1e-5 + far, rtol=0)
    hard = Renderer((9, 13), straight_through=True).silhouette(mesh, camera)
    assert not hard.any()


def test_gradients_of_a_face_that_is_a_point(monkeypatch):
    points, faces = torch.tensor([[[0.3, 0.1]] * 3]).double(), torch.tensor([[0, 1, 2]])
    arguments = (points, choice("logistic"), 6.0)
    expected = without_kernel(monkeypatch, *arguments, faces=faces)
    assert_same(run(*arguments, faces=faces), expected, 1e-9)
