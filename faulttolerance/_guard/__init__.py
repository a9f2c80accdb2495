"""Which policies hold for which function of which class, in which order, and how calls get to them."""
