# frozen_string_literal: true

# Puma's configuration for cluster.ru.
workers 2
threads 4, 4
preload_app!
silence_single_worker_warning if respond_to?(:silence_single_worker_warning)
on_worker_boot do
  $own = begin
    Ringwell::Engine.open(config: ENV.fetch("ENGINE_SETTINGS"))
  rescue Ringwell::EngineError => error
    error
  end
end
