"""What to do next: decisions that know no clock, thread, loop or chance; they are given the time and a number."""
