"""How models write tool calls: one description for each format, over shared readers of streaming text."""
