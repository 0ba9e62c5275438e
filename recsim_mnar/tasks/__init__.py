"""Frozen tasks that papers cite, and what an agent scores on them."""

from recsim_mnar.tasks.evaluating import Evaluation as Evaluation
from recsim_mnar.tasks.evaluating import evaluate as evaluate
from recsim_mnar.tasks.task import Task as Task
from recsim_mnar.tasks.task import task as task
from recsim_mnar.tasks.task import tasks as tasks
