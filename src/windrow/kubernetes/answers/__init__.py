"""What servers answer: whether it is what was asked for, and the words for why there is no answer."""
