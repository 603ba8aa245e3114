"""The tables of the control loop's journal, step by step; `control.store` takes the steps, nobody else."""
