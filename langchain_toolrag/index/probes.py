"""Requests that hardly any catalogue serves: what they score in one says what a miss looks like."""

from __future__ import annotations

PROBES = (
    "How do I bake sourdough bread at home?",
    "My left knee hurts when I climb stairs",
    "Write a short poem about autumn leaves",
    "What is the square root of 1444?",
    "Which chess opening is good for beginners?",
    "Order a pepperoni pizza for tonight",
    "Explain how photosynthesis works",
    "The washing machine makes a strange noise",
    "Teach me a card trick",
    "Who painted the ceiling of the Sistine Chapel?",
    "Suggest a name for my new puppy",
    "How far away is the moon?",
    "Knit a scarf with two colours",
    "What should I wear to a wedding?",
    "Tell me a joke about elephants",
    "Help me prepare for my driving test",
    "Is it safe to eat raw mushrooms?",
    "Compose a lullaby for my daughter",
    "Why do cats purr?",
    "Fix the puncture of my bicycle",
    "What does my horoscope say?",
    "Plan a vegetarian dinner for six people",
    "How do I remove red wine from a carpet?",
    "Give me a workout for stronger arms",
)
