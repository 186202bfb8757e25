"""Pictures of a story and of the flow, by matplotlib."""

from itertools import chain
from pathlib import Path
from typing import Any

from andrea.show import new_figure, save_figure


def draw_story(story: dict[str, Any], path: Path) -> None:
    """One token's way: how much every sublayer wrote, what the model would say there, and what each pushed its answer by."""
    parts = story["sublayers"]
    n = range(len(parts))
    figure = new_figure(11, 2 + 0.34 * len(parts))
    wrote, said, pushed = figure.subplots(1, 3, sharey=True, width_ratios=(3, 4, 3))
    wrote.barh(n, [s["added"]["norm"] for s in parts], color="tab:blue", label="|added|")
    wrote.plot([s["stream_norm"] for s in parts], n, color="tab:orange", marker=".", label="|stream after|")
    wrote.set(xlabel="length", title="added", yticks=n, yticklabels=[s["address"].removeprefix("blocks.") for s in parts])
    wrote.legend(fontsize="small")
    said.plot([s["after"]["target_probability"] for s in parts], n, color="tab:green", marker=".")
    for k, s in zip(n, parts, strict=True):
        best = s["after"]["top"][0]
        said.text(0.03, k, f"{best['text']!r} {best['probability']:.2f}", va="center", fontsize="small", parse_math=False)
    target = story["next"] or story["answer"]
    said.set(xlim=(0, 1), title="would say; line: p of the true next" if story["next"] else "would say; line: p of the answer")
    said.set_xlabel(f"p of {target['text']!r}", parse_math=False)
    pushes = [None if s["push"] is None else s["push"]["answer"] for s in parts]
    pushed.barh(n, [p or 0 for p in pushes], color=["tab:red" if (p or 0) < 0 else "tab:blue" for p in pushes])
    for k, p in zip(n, pushes, strict=True):
        if p is None:
            pushed.text(0, k, "not defined", va="center", fontsize="small")
    pushed.axvline(0, color="gray", linewidth=0.7)
    pushed.set(title="pushed the answer's logit by")
    pushed.set_xlabel(f"logit of {story['answer']['text']!r}, centred", parse_math=False)
    wrote.invert_yaxis()  # the way goes down, as the table does
    word = story["tokens"][story["position"]]["text"]
    figure.suptitle(f"token {story['position']}, {word!r}", parse_math=False)
    save_figure(figure, path)


def draw_flow(flow: dict[str, Any], path: Path) -> None:
    """One chart, x = layer (a half is attention's end, a whole number the block's), logarithmic."""
    axes = (figure := new_figure(9, 5)).add_subplot(xlabel="block", yscale="log", ylabel="see legend")
    where = {s["station"]: k / 2 for k, s in enumerate(flow["stations"])}
    axes.plot(list(where.values()), [s["gradient"] for s in flow["stations"]], marker=".", label="|dLoss / d stream|, mean over tokens")
    ratios = [(where[s["station"]], s["write"]["relative"]) for s in flow["stations"] if s["write"] and s["write"]["relative"]]
    if ratios:
        axes.plot(*zip(*ratios, strict=True), marker="s", markersize=4, label="|added| / |stream|")
    blocks = range(1, len(flow["blocks"]) + 1)
    for key, label in (("relative_gradient", "|dLoss / dW| / |W|"), ("relative_update", "|change of W| / |W| between saves")):
        if all(block[key] for block in flow["blocks"]):
            axes.plot(blocks, [block[key] for block in flow["blocks"]], marker="^", linestyle="--", label=label)
    axes.plot(blocks, [max(block["influence"], 1e-6) for block in flow["blocks"]], marker="d", linestyle=":", label="block influence")
    if costs := [(i, block["cost"]["mean"]) for i, block in enumerate(flow["blocks"], 1) if block["cost"] and block["cost"]["mean"] > 0]:
        axes.plot(*zip(*costs, strict=True), marker="x", linestyle=":", label="loss without the block, minus with it (nats)")
    axes.set_xticks([0, *blocks], ["embedding", *(str(i - 1) for i in blocks)])
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")
    axes.set_title(f"{Path(flow['run']).name}: flow over depth", parse_math=False)
    save_figure(figure, path)


def draw_growth(grown: dict[str, Any], path: Path) -> None:
    """Four charts, x = step: gradients, writes, the lens, and every head's way. Early layers are dark, late ones light."""
    steps, seen = [o["step"] for o in grown["observed"]], grown["observed"]
    figure = new_figure(11, 7)
    from matplotlib import colormaps  # new_figure says what to install where it is not there

    slopes, wrote, lens, looks = figure.subplots(2, 2, sharex=True).flat
    for axes, key, title, names in (
        (slopes, "gradients", "|dLoss / d stream|", grown["stations"]),
        (wrote, "writes", "|added| / |stream|", grown["sublayers"]),
        (lens, "entropies", "entropy of the logit lens, bits", grown["stations"]),
    ):
        shades = colormaps["viridis"].resampled(len(names))
        for k, name in enumerate(names):
            label = name if k in (0, len(names) // 2, len(names) - 1) else None
            axes.plot(steps, [o[key][k] for o in seen], color=shades(k), marker=".", linewidth=1, label=label)
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        if axes is not lens and any(value for o in seen for value in o[key]):  # undefined, or all 0, has no logarithm
            axes.set_yscale("log")
    for k, (name, colour) in enumerate(zip(grown["scores"], ("tab:blue", "tab:green", "tab:red", "tab:gray"), strict=True)):
        ways = zip(*(chain.from_iterable(o["heads"]) for o in seen), strict=True)
        for n, way in enumerate(ways):
            looks.plot(steps, [scores[k] for scores in way], color=colour, alpha=0.5, linewidth=0.8, label=None if n else name)
    looks.set(title="heads: each one's four scores", ylim=(0, 1))
    looks.grid(alpha=0.3)
    if seen[0]["heads"]:
        looks.legend(fontsize="small")
    for axes in (lens, looks):
        axes.set_xlabel("step")
    figure.suptitle(f"{Path(grown['run']).name}: as it grew", parse_math=False)
    save_figure(figure, path)


def draw_twins(events: list[dict[str, Any]], names: tuple[str, str], path: Path) -> None:
    """Two models grown beside each other: their losses by step, and their gradients over depth at the first look and at the last."""
    figure = new_figure(11, 4.5)
    losses, depth = figure.subplots(1, 2)
    grew, looked = ([event for event in events if event["event"] == kind] for kind in ("Grew", "Looked"))
    steps = [event["step"] for event in grew]
    for side, (name, colour) in enumerate(zip(names, ("tab:blue", "tab:red"), strict=True)):
        losses.plot(steps, [event["losses"][side] or float("nan") for event in grew], color=colour, linewidth=0.8, label=name)
        for event, style in ((looked[0], ":"), (looked[-1], "-")):
            sizes = event[("first", "second")[side]]
            depth.plot(
                [size or float("nan") for size in sizes], color=colour, linestyle=style, marker=".", label=f"{name}, step {event['step']}"
            )
    losses.axhline(events[0]["unigram"], color="gray", linestyle=":", label="frequency of tokens alone")
    losses.set(xlabel="step", ylabel="loss, nats per token")
    depth.set(xlabel="block (0: the embedding)", ylabel="|dLoss / d stream|, mean over tokens", yscale="log")
    for axes in (losses, depth):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    save_figure(figure, path)
