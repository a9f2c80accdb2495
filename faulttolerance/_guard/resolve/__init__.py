"""The effective policies of a guard, and the function through which its calls run."""
