# frozen_string_literal: true

require "rails/generators/base"

module Ringwell
  # Rails finds its generators by this name.
  module Generators
    # `rails generate ringwell:install` writes config/ringwell.yml, and gives each test a fresh
    # {Fake}.
    class InstallGenerator < ::Rails::Generators::Base
      desc "Writes config/ringwell.yml, and gives the tests a fake."
      source_root File.expand_path("templates", __dir__)

      class_option :url, type: :string, default: "http://127.0.0.1:8080",
        desc: "The server for development"
      class_option :pool, type: :string, default: "1", desc: "The ring pool's id"

      # Writes the settings for all environments.
      def write_settings = template("ringwell.yml", "config/ringwell.yml")

      # Gives each test a fresh fake, in the application's test framework.
      def add_to_tests
        {"test/test_helper.rb" => "minitest", "spec/rails_helper.rb" => "rspec"}
          .each do |file, framework|
            next unless File.exist?(File.expand_path(file, destination_root))

            insert_into_file file, "require \"ringwell/#{framework}\"\n",
              after: /require ["'](?:rails\/test_help|rspec\/rails)["']\n/
          end
      end

      # Prints the next steps.
      def show_next_step
        say "A view shows a number by: <%= ringwell_number #{options[:pool].inspect}, " \
            "params: { m1: params[:campaign] } %>"
      end
    end
  end
end
