"""What a log says of the world it comes from: fitting one to it, judging the fit, and advice on recommenders."""
