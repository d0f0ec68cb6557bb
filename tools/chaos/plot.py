"""Lines over minutes, as SVG and as text: no library that would have to be installed."""

COLOURS = ["#2563a8", "#c2571a", "#3a8a3a", "#8a3a8a"]
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 260, 70, 40


def svg(title, series, unit):
    """`series`: {name: [(minute, value)]}, each with its own panel, as their sizes differ much."""
    panels = []
    for index, (name, points) in enumerate(series.items()):
        if not points:
            continue
        last = max(x for x, _ in points) or 1
        low, high = min(y for _, y in points), max(y for _, y in points)
        low, high = low - (high - low) * 0.1 - 0.5, high + (high - low) * 0.1 + 0.5

        def at(x, y):
            return (LEFT + x / last * (WIDTH - LEFT - 20),
                    HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - BOTTOM - 40))
        parts = [f'<g transform="translate(0 {40 + index * HEIGHT})" font-size="12" font-family="sans-serif">',
                 f'<text x="{LEFT}" y="20">{name}</text>']
        for step in range(5):
            value = low + (high - low) * step / 4
            _, y = at(0, value)
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 20}" stroke="#ddd"/>'
                         f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.1f}</text>')
            x, _ = at(last * step / 4, low)
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{last * step / 4:.1f} min</text>')
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[index % 4]}" stroke-width="1.5"/></g>')
        panels += parts
    height = 60 + HEIGHT * len(series)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">'
            f'<rect width="100%" height="100%" fill="white"/>'
            f'<text x="{LEFT}" y="24" font-size="15" font-family="sans-serif">{title} ({unit})</text>'
            + "\n".join(panels) + "</svg>\n")


def text(points, width=64, height=8):
    """One line over time, drawn with characters."""
    if not points:
        return ""
    last = max(x for x, _ in points) or 1
    low, high = min(y for _, y in points), max(y for _, y in points)
    rows = [[" "] * width for _ in range(height)]
    for x, y in points:
        row = int((y - low) / ((high - low) or 1) * (height - 1) + 0.5)
        rows[height - 1 - row][min(width - 1, int(x / last * (width - 1)))] = "*"
    lines = ["".join(row).rstrip() for row in rows]
    return "\n".join([f"{high:8.1f} |{lines[0]}", *(f"{'':8} |{line}" for line in lines[1:-1]),
                      f"{low:8.1f} |{lines[-1]}", f"{'':8} +{'-' * width} {last:.1f} min"])
