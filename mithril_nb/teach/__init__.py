"""Answers for learners, composed from data of the rooms below: explanations of lines, questions and puzzles."""
