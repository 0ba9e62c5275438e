"""Frozen tasks that papers cite, and what an agent scores on them."""

from recsim_mnar.tasks.datasets import TaskDataset as TaskDataset
from recsim_mnar.tasks.datasets import task_dataset as task_dataset
from recsim_mnar.tasks.episodes import evaluate_agent as evaluate_agent
from recsim_mnar.tasks.evaluating import Evaluation as Evaluation
from recsim_mnar.tasks.evaluating import Task as Task
from recsim_mnar.tasks.evaluating import evaluate as evaluate
from recsim_mnar.tasks.evaluating import task as task
from recsim_mnar.tasks.evaluating import tasks as tasks
