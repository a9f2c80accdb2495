"""What holds for a guard, and the function that its calls run through."""
