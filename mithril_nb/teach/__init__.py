"""Teaching: questions about live programs, puzzles, explanations of lines, and lectures."""

from mithril_nb.inspection.tour import Moment
from mithril_nb.teach.asking import KINDS, ask, ask_calls, candidates
from mithril_nb.teach.puzzle_sets import puzzles
from mithril_nb.teach.puzzles import Puzzle, PuzzleResult, puzzle
from mithril_nb.teach.question import Question, Result, Score, score
from mithril_nb.teach.slides import slides

__all__ = [
    "KINDS", "Moment", "Puzzle", "PuzzleResult", "Question", "Result", "Score", "ask", "ask_calls", "candidates",
    "puzzle", "puzzles", "score", "slides",
]  # fmt: skip
